"""First layers that a shortcut brings to a sum are made again there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from znnpy import Execution, Model, reference
from znnpy.geometry import fit
from znnpy.layers.types import Norm
from znnpy.network import parameter_shapes
from znnpy.network.shortcuts_again import shortcuts_again
from znnpy.network.types import Edge, Network, Node

SAME: dict[str, Any] = {"size": (3, 3, 3), "padding": ((1, 1), (1, 1), (1, 1))}


def block(channels: int = 16, late: bool = False, **first: Any) -> Network:
    """Return the first residual block of a net; `late`: something behind the sum reads its source, too."""
    norm = Norm("instance")
    nodes = (
        Node("input", "input", 1),
        Node("stem", "transfer", channels, "prelu", norm=norm),
        Node("a", "transfer", channels, "relu", norm=norm),
        Node("b", "transfer", channels, norm=norm),
        Node("added", "transfer", channels, "relu", bias=False),
        Node("output", "transfer", 2),
    )
    edges = (
        replace(Edge("first", "conv", "input", "stem", **SAME), **first),
        Edge("to_a", "conv", "stem", "a", **SAME),
        Edge("to_b", "conv", "a", "b", **SAME),
        Edge("sum", "identity", "b", "added"),
        Edge("shortcut", "identity", "stem", "added"),
        Edge("last", "conv", "added", "output", **SAME),
        *([Edge("late", "conv", "stem", "output", **SAME)] if late else []),
    )
    return Network(nodes, edges)


def deeper() -> Network:
    """Return the block behind another layer than the first."""
    nodes, (first, *edges) = block().nodes, block().edges
    before, to_it = Node("before", "transfer", 1), Edge("zeroth", "conv", "input", "before", **SAME)
    return Network((nodes[0], before, *nodes[1:]), (to_it, replace(first, source="before"), *edges))


def twofold() -> Network:
    """Return the block behind a layer that two convolutions make."""
    network = block()
    return Network(network.nodes, (*network.edges, Edge("too", "conv", "input", "stem", **SAME)))


def drawn(network: Network) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    shapes = parameter_shapes(network)
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def test_values_are_the_same() -> None:
    network, found = block(), shortcuts_again(block())
    parameters = drawn(network)
    twice = found.parameters(parameters)
    assert {name: np.shape(it) for name, it in twice.items()} == parameter_shapes(found.network)
    names = [node.name for node in found.network.nodes]
    assert names == ["input", "stem", "a", "b", "stem:shortcut", "added", "output"]
    assert [edge.source for edge in found.network.incoming("added")] == ["b", "stem:shortcut"]
    x = np.random.default_rng(0).standard_normal((1, 1, 8, 8, 8))
    one, other = (
        reference.forward(net, fit(net, (8, 8, 8)), its, {"input": x})["output"]
        for net, its in ((network, parameters), (found.network, twice))
    )
    assert (one == other).all()
    assert shortcuts_again(found.network).network == found.network


def test_bits_are_the_same_in_less_memory() -> None:
    network, found = block(), shortcuts_again(block())
    parameters, shape = drawn(network), (16, 32, 32)
    x = np.random.default_rng(0).standard_normal((1, 1, *shape), np.float32)
    values, sizes = [], []
    for net, its in ((network, parameters), (found.network, found.parameters(parameters))):
        lean = Execution(lean=True)
        with Model(net, shape, conv="direct", training=False, threads=1, execution=lean) as model:
            model.set_parameters(its)
            values.append(model.forward(x))
            sizes.append(model.memory)
    assert (values[0] == values[1]).all()
    image = 4 * 16 * 16 * 32 * 32
    assert sizes[1] < sizes[0] - 0.75 * image


@pytest.mark.parametrize(
    "network",
    [
        block(late=True),
        block(channels=4),
        block(kind="conv_transpose"),
        block(stride=(2, 2, 2)),
        deeper(),
        twofold(),
        shortcuts_again(block()).network,
    ],
)
def test_what_is_left_as_it_is(network: Network) -> None:
    found = shortcuts_again(network)
    assert found.network == network
    assert not found.names
