"""Gradients that lie over values: whose do, and that nothing else changes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from znnpy import Model
from znnpy.engine.memory import feature_maps
from znnpy.engine.memory.layout import Layout
from znnpy.layers.types import BARE
from znnpy.network.types import Edge, Network, Node

LINES = (3, 1, 1)
OUTPUT = (9, 6, 5)
METHODS = dict.fromkeys(("forward", "gradient", "weight"), "winograd")
METHODS |= {f"{which}_march": "joined" for which in METHODS}


def chain(*functions, size=LINES, padding=BARE):
    """Convolutions in a row, whose nodes are a, b ..., and a plan for them."""
    channels = 3, *(11 for _ in functions)
    names = ["input", *"abcdefgh"[: len(functions)]]
    kinds = ["input", *("transfer" for _ in functions)]
    nodes = map(Node, names, kinds, channels, ("linear", *functions))
    edges = tuple(
        Edge(f"c{target}", "conv", source, target, size=size, padding=padding)
        for source, target in pairwise(names)
    )
    return Network(tuple(nodes), edges), {edge.name: METHODS for edge in edges}


def over(network, plan):
    """Nodes whose gradients lie over their values."""
    with Model(network, OUTPUT, threads=1, plan=plan) as model:
        maps = model._engine._build.maps
        return {
            name
            for name, it in maps.gradients.items()
            if it.address == maps.activations[name].address
        }


def test_those_that_one_task_makes_with_the_weight_gradient():
    network, plan = chain("relu", "leaky_relu", "linear", "relu")
    assert over(network, plan) == {"a", "b", "c"}
    apart = METHODS | {"gradient_march": "apart"}
    assert over(network, plan | {"cc": apart}) == {"a", "c"}


def test_those_whose_function_is_applied_in_passing():
    assert over(*chain("relu", "tanh", "relu", "relu")) == {"a", "c"}


def test_values_that_others_read_stay():
    network, plan = chain("relu", "relu", "relu", "relu")
    twice = Edge("again", "conv", "b", "c", size=LINES)
    network = Network(network.nodes, (*network.edges, twice))
    assert over(network, plan | {"again": METHODS}) == {"a", "c"}


def test_maxima_stay():
    network, plan = chain("relu", "linear", "relu", "relu")
    ca, cb, cc, cd = network.edges
    maxima = Edge(cb.name, "max_filter", cb.source, cb.target, size=(2, 1, 1))
    network = Network(network.nodes, (ca, maxima, cc, cd))
    assert over(network, {name: it for name, it in plan.items() if name != cb.name}) == {"c"}


def updated(case, threads):
    """What a model needs, and what three updates and a forward pass make."""
    network, plan = case
    output, random = (33, 34, 35), np.random.default_rng(0)
    target = random.random((2, 11, *output), np.float32)
    with Model(network, output, batch=2, threads=threads, seed=3, plan=plan) as model:
        x = random.random((2, 3, *model.input_shape), np.float32)
        losses = [model.step(x, target) for _ in range(3)]
        return model.memory, [*losses, model.forward(x), *model.parameters.values()]


@pytest.mark.parametrize("size", [LINES, (1, 3, 3), (3, 3, 3)])
def test_updates_have_the_same_bits(monkeypatch, size):
    case = chain("relu", "leaky_relu", "relu", size=size)
    less, found = updated(case, 2)
    monkeypatch.setattr(feature_maps, "lies_over_values", lambda *_: False)
    more, wanted = updated(case, 2)
    assert less < more
    assert all(map(np.array_equal, found, wanted))


@pytest.mark.parametrize("threads", [1, 16])
def test_lines_need_no_zeros_around_them(monkeypatch, threads):
    case = chain("relu", "leaky_relu", "relu", padding=((2, 1), (0, 0), (0, 0)))
    less, found = updated(case, threads)
    monkeypatch.setattr(Layout, "_goes_by_lines", lambda *_: False)
    more, wanted = updated(case, threads)
    assert less < more
    assert all(map(np.array_equal, found, wanted))
