"""Filters that are kept for all microbatches, where memory allows it, change no bit of an update."""

import numpy as np

from znnpy import Model, Training
from znnpy.engine import memory_planning
from znnpy.engine.convolution.winograd import filters
from znnpy.network.types import Edge, Network, Node
from znnpy.plan import PASSES

WIDE, FEW, EXTENT = 160, 256, (2, 8, 32)


def gradients(monkeypatch):
    """Gradients in two microbatches, and whether filters were kept for both."""
    nodes = (
        Node("input", "input", 2), Node("a", "transfer", WIDE, function="leaky_relu"),
        Node("out", "transfer", FEW),
    )  # fmt: skip
    edges = (
        Edge("one", "conv", "input", "a", size=(1, 1, 1)),
        Edge("two", "conv", "a", "out", size=(3, 3, 3), padding="same"),
    )
    methods = {"one": "direct", "two": "winograd"}
    plan = {
        name: {**dict.fromkeys(PASSES, method), "reason": ""} for name, method in methods.items()
    }
    rng, seen = np.random.default_rng(0), []
    goes_staged = filters.goes_staged

    def told(layout, shape):
        seen.append(layout.filters_kept)
        return goes_staged(layout, shape)

    monkeypatch.setattr("znnpy.engine.convolution.winograd.passes.goes_staged", told)
    given = {"batch": 4, "threads": 1, "plan": plan, "loss": "square"}
    with Model(Network(nodes, edges), EXTENT, training=Training(microbatch=2), **given) as model:
        x = rng.standard_normal((4, 2, *model.input_shape))
        y = rng.standard_normal((4, FEW, *EXTENT))
        _, found = model.loss_and_gradients(x, y)
    return found, seen[-1]


def test_bits_do_not_depend_on_the_memory_for_them(monkeypatch):
    found, kept = gradients(monkeypatch)
    monkeypatch.setattr(memory_planning, "room_for_replicas", lambda settings: 0)
    other, made = gradients(monkeypatch)
    assert (kept, made) == (True, False)
    assert all(np.array_equal(found[name], other[name]) for name in found)
