"""Outputs with a relu: the loss applies its gradient and adds up that of the bias, without a pass of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from against_reference import check_gradients
from model_settings import model_of

from znnpy import reference
from znnpy.engine.tasks.task_identity import Part, Pass, identities
from znnpy.geometry import fit
from znnpy.network import parameter_shapes
from znnpy.network.types import Edge, Network, Node

SHAPE = (3, 4, 5)


def network(function: str, slope: float, bias: bool) -> Network:
    """A net whose output has few channels, which may lie planar, and one with many; that of a logistic has its pass."""
    nodes = (
        Node("in", "input", 2),
        Node("few", "transfer", 3, function, slope=slope, bias=bias),
        Node("many", "transfer", 19, function, slope=slope, bias=bias),
        Node("curved", "transfer", 3, "logistic"),
    )
    names = ("few", "many", "curved")
    return Network(nodes, tuple(Edge(f"to_{n}", "conv", "in", n, size=(1, 3, 3)) for n in names))


@pytest.mark.parametrize("microbatch", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("function", "slope"), [("relu", 0.0), ("leaky_relu", 0.125)])
def test_gradients_beside_the_reference(
    function: str, slope: float, bias: bool, microbatch: int
) -> None:
    net, random = network(function, slope, bias), np.random.default_rng(1)

    def normal(*shape: int) -> Any:
        return random.standard_normal(shape).astype(np.float32)

    parameters = {name: normal(*shape) for name, shape in parameter_shapes(net).items()}
    geometry = fit(net, SHAPE)
    x = {"in": normal(2, 2, *geometry.input_shapes["in"])}
    targets = {node.name: normal(2, node.channels, *SHAPE) for node in net.outputs}
    weights = {
        name: random.random(target.shape).astype(np.float32) for name, target in targets.items()
    }
    wanted = reference.gradients(net, geometry, parameters, x, targets, weights, "square")
    with model_of(
        net, SHAPE, batch=2, microbatch=microbatch, threads=2, loss="square", conv="direct"
    ) as model:
        model.set_parameters(parameters)
        check_gradients(model.loss_and_gradients(x, targets, weight=weights), wanted)
        passes = {
            task.owner
            for task in identities(model.task_graph)
            if task.serves is Pass.BACKWARD and task.part is Part.FUNCTION
        }
    assert passes == {"curved"}
