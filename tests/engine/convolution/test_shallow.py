"""Layers of few planes of one tile between many channels: passes beside float64, and the same bits however cut."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from against_reference import errors
from chains import K3, ONE, winograd_chain, winograd_plan

from znnpy import Execution, Model
from znnpy.engine.convolution.winograd import products
from znnpy.engine.tasks.task_identity import Kind, identities
from znnpy.network.types import Network
from znnpy.plan import ConvShape
from znnpy.plan.algorithms.winograd_shallow import is_shallow
from znnpy.profile.command import flops_by_task

LAYERS = [
    ((64, 49, 80), (4, 4, 4), 1, 1),
    ((53, 64, 48), (3, 2, 4), 2, 1),
    ((48, 48, 50), (1, 4, 3), 3, 1),
    ((48, 50, 48), (2, 2, 1), 2, 0),  # not padded along y and x
]


def network(images: tuple[int, int, int], around: int) -> Network:
    """Layers padded by a voxel along z."""
    net = winograd_chain(images)
    sides = (around, around)
    return Network(
        net.nodes,
        tuple(
            replace(edge, padding=((1, 1), sides, sides), size=K3 if number else ONE)
            if number
            else replace(edge, size=ONE)
            for number, edge in enumerate(net.edges)
        ),
    )


@pytest.mark.quick(2)
@pytest.mark.parametrize(("images", "output", "batch", "around"), LAYERS)
def test_values_and_gradients(images, output, batch, around):
    net = network(images, around)
    assert max(errors(net, output, winograd_plan(net), batch).values()) < 3e-5


def run(net, output, batch, threads):
    plan = winograd_plan(net)
    rng = np.random.default_rng(0)
    with Model(net, output, batch=batch, threads=threads, plan=plan, loss="square", seed=1,
               execution=Execution(steal_seed=threads)) as model:  # fmt: skip
        x = rng.standard_normal((batch, 1, *model.input_shape)).astype(np.float32)
        target = rng.standard_normal((batch, net.nodes[-1].channels, *output)).astype(np.float32)
        found = {"forward": model.forward(x)} | model.loss_and_gradients(x, target)[1]
        graph, flops = model.task_graph, flops_by_task(model)
    return {name: array.tobytes() for name, array in found.items()}, graph, flops


def test_bits_do_not_depend_on_cuts(monkeypatch):
    images, output, batch, around = LAYERS[1]
    net = network(images, around)
    expected, graph, flops = run(net, output, batch, 1)
    assert {what for what in identities(graph) if what.kind is Kind.WINOGRAD} <= set(flops)
    monkeypatch.setattr(products, "SHALLOW_BYTES", 1)
    found, many, _ = run(net, output, batch, 64)
    assert len(many.tasks) > len(graph.tasks)
    assert found == expected


SHAPE = ConvShape(64, 64, K3, ONE, ONE, (4, 4, 4), (4, 4, 4), 1, padding=((1, 1),) * 3)


def test_few_planes_of_one_tile_are_shallow():
    assert is_shallow(SHAPE)
    assert is_shallow(
        replace(SHAPE, source=(2, 6, 6), target=(2, 4, 4), padding=((1, 1), (0, 0), (0, 0)))
    )


@pytest.mark.parametrize(
    "other",
    [
        {"source": (5, 4, 4), "target": (5, 4, 4)},
        {"source": (4, 5, 4), "target": (4, 5, 4)},
        {"source": (6, 4, 4), "padding": ((0, 0), (1, 1), (1, 1))},
        {"padding": ((0, 2), (1, 1), (1, 1))},
        {"border": "reflect"},
        {"dilation": (1, 2, 2), "padding": ((1, 1), (2, 2), (2, 2))},
        {"size": (3, 3, 1)},
        {"inputs": 8},
        {"inputs": 16, "outputs": 64},
    ],
)  # fmt: skip
def test_others_are_not(other):
    assert not is_shallow(replace(SHAPE, **other))
