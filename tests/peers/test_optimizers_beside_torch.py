"""Every optimiser beside PyTorch's, with the keys that change what it does, on the gradients of a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from model_settings import model_of

from znnpy.engine import Optimizer
from znnpy.learning.optimizers import OPTIMIZERS

torch = pytest.importorskip("torch")

NET = {
    "layers": [{"conv": {"channels": 3, "size": [1, 2, 2], "bias": False}}]
}  # biases do not decay
# (keys, PyTorch's class, keys of that)
CASES: dict[str, list[tuple[dict[str, Any], str, dict[str, Any]]]] = {
    "sgd": [
        ({"momentum": 0.0}, "SGD", {}),
        ({"momentum": 0.7, "weight_decay": 0.2}, "SGD", {}),
        ({"momentum": 0.7, "nesterov": True}, "SGD", {}),
    ],
    "adam": [
        ({"beta1": 0.6, "beta2": 0.8, "weight_decay": 0.3}, "Adam", {"betas": (0.6, 0.8)}),
        ({"eps": 1e-3, "decoupled": True, "weight_decay": 0.3}, "AdamW", {}),
    ],
    "adamw": [
        ({}, "AdamW", {}),
        ({"beta1": 0.6, "beta2": 0.8, "weight_decay": 0.3}, "AdamW", {"betas": (0.6, 0.8)}),
    ],
}


def test_every_one_is_compared() -> None:
    assert CASES.keys() == OPTIMIZERS.keys() - {"lamb", "lars"}  # PyTorch has neither


@pytest.mark.parametrize(
    ("kind", "keys", "name", "theirs"),
    [(kind, *case) for kind, cases in CASES.items() for case in cases],
)
def test_updates(kind: str, keys: dict[str, Any], name: str, theirs: dict[str, Any]) -> None:
    own = {"beta1", "beta2", "decoupled"}
    given = theirs | {key: value for key, value in keys.items() if key not in own}
    rng, options = (
        np.random.default_rng(0),
        {"threads": 1, "loss": "square", "precision": "float64"},
    )
    with model_of(NET, (2, 3, 3), optimizer=Optimizer(kind, **keys), **options) as model:
        moved = torch.tensor(np.float64(model.parameters["conv1"]), requires_grad=True)
        optimizer = getattr(torch.optim, name)([moved], lr=1.0, **given)
        for rate in (0.1, 0.03, 0.05, 0.01):
            x, target = rng.normal(size=(1, 1, 2, 4, 4)), rng.normal(size=(1, 3, 2, 3, 3))
            moved.grad = torch.tensor(np.float64(model.loss_and_gradients(x, target)[1]["conv1"]))
            optimizer.param_groups[0]["lr"] = rate
            optimizer.step()
            model.step(x, target, learning_rate=rate)
            np.testing.assert_allclose(
                model.parameters["conv1"], moved.detach(), rtol=1e-5, atol=1e-6
            )
