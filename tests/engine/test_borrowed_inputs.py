"""Inputs that are packed where the caller's arrays lie."""

from __future__ import annotations

import weakref
from dataclasses import replace

import numpy as np
import pytest
from model_settings import model_of

from znnpy import load_network
from znnpy.engine.memory_planning import planned_memory
from znnpy.network.types import Network

SHAPE = (3, 5, 19)


def packed_input() -> Network:
    """An input of more channels than lie planar."""
    return load_network(
        {
            "nodes": {
                "input": {"kind": "input", "channels": 37},
                "a": {"kind": "transfer", "channels": 8, "function": "relu"},
                "wide": {"kind": "transfer", "channels": 50, "function": "relu"},
                "b": {"kind": "transfer", "channels": 9},
            },
            "edges": {
                "first": {"kind": "conv", "from": "input", "to": "a", "size": 2},
                "second": {"kind": "conv", "from": "a", "to": "wide", "size": 1},
                "third": {"kind": "conv", "from": "wide", "to": "b", "size": 1},
            },
        }
    )


def inputs(samples: int, seed: int) -> np.ndarray:
    shape = (samples, 37, *(size + 1 for size in SHAPE))
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("batch", "microbatch"), [(1, 1), (4, 2)])
@pytest.mark.parametrize("training", [True, False])
def test_arrays_of_any_strides(batch: int, microbatch: int, training: bool) -> None:
    x = inputs(batch, 0)
    with model_of(packed_input(), SHAPE, batch=batch, microbatch=microbatch, threads=2, seed=1,
                  training=training) as model:  # fmt: skip
        wanted = model.forward(x.copy())
        turned = np.ascontiguousarray(x[..., ::-1])
        np.testing.assert_array_equal(model.forward(turned[..., ::-1]), wanted)
        assert not np.array_equal(model.forward(turned), wanted)
        np.testing.assert_array_equal(model.forward(x), wanted)


def test_what_is_staged_is_not_what_was_borrowed() -> None:
    x, other = inputs(1, 0), inputs(1, 1)
    with model_of(packed_input(), SHAPE, threads=2, seed=1, training=False) as model:
        wanted = model.forward(x)
        model.forward(other)
        model.staged()["input"][...] = x
        np.testing.assert_array_equal(model.run()["b"], wanted)


def test_what_was_borrowed_is_let_go_once_others_are_staged() -> None:
    x, target = inputs(1, 0), np.zeros((1, 9, *SHAPE), np.float32)
    kept = weakref.ref(x)
    with model_of(packed_input(), SHAPE, threads=2, loss="square") as model:
        model.forward(x)
        del x
        assert kept() is not None
        model.submit(inputs(1, 1), target)
        assert kept() is None


@pytest.mark.parametrize("little", [False, True])
def test_an_array_may_change_once_the_loss_is_known(little: bool) -> None:
    """Where memory is so short that tasks are repeated for the backward pass, they must not pack it again."""
    most, found = None, []
    target = np.random.default_rng(5).standard_normal((1, 9, *SHAPE)).astype(np.float32)
    if little:
        with model_of(packed_input(), SHAPE, threads=2, loss="square") as model:
            settings = replace(model._settings, max_memory=1)
            most = planned_memory(model._layout, settings).bytes
    for changed in (False, True):
        with model_of(packed_input(), SHAPE, threads=2, seed=1, loss="square",
                      max_memory=most) as model:  # fmt: skip
            assert bool(model._engine._build.again) == little
            for seed in range(4):
                x = inputs(1, seed)
                model.step(x, target)
                place = model._engine._staged[seed % 2]._parts[0]._sources["input"][0]
                assert (place == x.ctypes.data) != little
                x[...] = np.nan if changed else x
            model.drain()
            found.append(model.parameters)
    for name, value in found[0].items():
        np.testing.assert_array_equal(value, found[1][name])


@pytest.mark.parametrize("loss", ["bce_dice", "square"])
def test_targets_may_change_once_the_loss_is_known(loss: str) -> None:
    """Those of overlap are read twice: for the sums, and for the gradient that these lead to."""
    net = load_network({"input": 1, "layers": [{"conv": {"channels": 8, "size": 1}}]})
    shape, found = (8, 32, 32), []
    for changed in (False, True):
        with model_of(net, shape, threads=1, seed=1, loss=loss, conv="direct") as model:
            for seed in range(4):
                rng = np.random.default_rng(seed)
                x = rng.standard_normal((1, 1, *shape), np.float32)
                target = rng.integers(0, 2, (1, 8, *shape)).astype(np.float32)
                model.step(x, target, learning_rate=1.0)
                target[...] = 1 - target if changed else target
            model.drain()
            found.append(model.parameters)
    for name, value in found[0].items():
        np.testing.assert_array_equal(value, found[1][name])
