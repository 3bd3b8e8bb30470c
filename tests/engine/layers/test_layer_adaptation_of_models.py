"""LAMB and LARS in a model: as float64 has it; the same bits for any number of threads, clipped, frozen, averaged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from model_settings import model_of

from znnpy.engine import Optimizer

# Filters in several ranges, and some with lanes of padding.
NET = {
    "layers": [
        {"conv": {"channels": 40, "size": [1, 3, 3], "function": "relu", "norm": "batch"}},
        {"conv": {"channels": 72, "size": [3, 3, 3], "function": "relu"}},
        {"conv": {"channels": 3, "size": [1, 1, 1]}},
    ]
}
SHAPE = (2, 3, 3)


def trained(updates: int = 3, **options: Any) -> dict[str, Any]:
    """Parameters after some updates, and the moving averages."""
    rng = np.random.default_rng(0)
    ema = options.pop("ema", None)
    kind = options.pop("kind", "lamb")
    made = Optimizer(kind, weight_decay=0.05, trust=0.5, ema=ema)
    settings = {"batch": 2, "loss": "square", "conv": "direct", "seed": 1} | options
    with model_of(NET, SHAPE, optimizer=made, **settings) as model:
        for _ in range(updates):
            x = rng.normal(size=(2, 1, *model.input_shape)).astype(np.float32)
            target = rng.normal(size=(2, 3, *SHAPE)).astype(np.float32)
            model.step(x, target, learning_rate=0.05)
        averages = {f"{k} average": v for k, v in model.averaged_parameters.items()} if ema else {}
        return {k: np.array(v) for k, v in (model.parameters | averages).items()}


@pytest.mark.parametrize("kind", ["lamb", "lars"])
@pytest.mark.parametrize("options", [{}, {"ema": 0.9}, {"clip_norm": 0.01}, {"microbatch": 1}])
def test_bits_are_those_of_any_number_of_threads(options: dict[str, Any], kind: str) -> None:
    one = trained(threads=1, kind=kind, **options)
    for threads in (2, 3):
        other = trained(threads=threads, kind=kind, **options)
        assert one.keys() == other.keys()
        for name, values in one.items():
            np.testing.assert_array_equal(values, other[name], err_msg=name)


@pytest.mark.parametrize("options", [{}, {"clip_norm": 0.01}])
@pytest.mark.parametrize("kind", ["lamb", "lars"])
def test_updates_are_those_of_float64(kind: str, options: dict[str, Any]) -> None:
    found = trained(threads=2, kind=kind, **options)
    exact = trained(precision="float64", threads=1, kind=kind, **options)
    for name, values in exact.items():
        np.testing.assert_allclose(found[name], values, rtol=2e-3, atol=2e-4, err_msg=name)


def test_each_layer_moves_by_the_rate_times_its_norm() -> None:
    before, after = trained(0, threads=2), trained(1, threads=2)
    for name, old in before.items():
        if old.ndim == 5:
            moved = np.linalg.norm(np.float64(after[name]) - old) / np.linalg.norm(old)
            assert moved == pytest.approx(0.05, rel=1e-4), name


@pytest.mark.parametrize("kind", ["lamb", "lars"])
def test_what_is_frozen_stays(kind: str) -> None:
    before = trained(0, threads=2, kind=kind)
    after = trained(2, threads=2, kind=kind, freeze=["conv2*"])
    same = {name for name in before if np.array_equal(before[name], after[name])}
    assert {name for name in before if name.startswith("conv2")} <= same
    assert "conv1" not in same
