"""Norms beside NumPy's; those of gradients from what the optimiser's own formula remembers."""

from __future__ import annotations

import numpy as np
import pytest

from znnpy.engine.layers.optimizer import Optimizer
from znnpy.train.display.norms import gradient_norms, weight_norms

CHOOSE = np.random.default_rng(0)
SHAPES = {"conv1": (3, 2, 3, 3, 3), "layer1": (3,), "conv2": (700, 30, 3, 3, 3)}


def test_norms_are_numpys() -> None:
    arrays = {name: CHOOSE.normal(size=it).astype(np.float32) for name, it in SHAPES.items()}
    found = weight_norms(arrays)
    flat = np.concatenate([it.ravel() for it in arrays.values()]).astype(np.float64)
    assert found[""] == pytest.approx(np.linalg.norm(flat), rel=1e-12)
    assert set(found) == {"", "conv1", "conv2"}
    wanted = np.linalg.norm(arrays["conv2"].astype(np.float64))
    assert found["conv2"] == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("updates", [1, 7, 60])
def test_a_constant_gradient_has_its_own_norm(kind: str, updates: int) -> None:
    """Whatever an optimiser remembers of it; momentum only after many updates."""
    optimizer = Optimizer(kind, **({"momentum": 0.5} if kind == "sgd" else {}))
    if kind == "sgd" and updates < 60:
        pytest.skip("momentum has not seen enough")
    gradient = CHOOSE.normal(size=SHAPES["conv1"])
    states = {name: np.zeros(gradient.shape) for name in optimizer.entry.states(optimizer.keys)}
    for update in range(1, updates + 1):
        optimizer.entry.step(optimizer.keys, gradient, states, update)
    named = {f"conv1/{name}": array for name, array in states.items()}
    found = gradient_norms(optimizer, named, updates)
    assert found[""] == found["conv1"] == pytest.approx(np.linalg.norm(gradient), rel=1e-6)


def test_without_memory_nothing_is_known() -> None:
    assert gradient_norms(Optimizer("sgd", momentum=0), {}, 5) == {}
    assert gradient_norms(Optimizer("adam"), {}, 0) == {}
