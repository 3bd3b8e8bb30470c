"""Moving averages of weights beside PyTorch's `AveragedModel`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from model_settings import model_of

from znnpy.engine import Optimizer

torch = pytest.importorskip("torch")

NET = {"layers": [{"conv": {"channels": 3, "size": [1, 2, 2]}}]}


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("decay", [0.0, 0.3, 0.999])
@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_averages(kind: str, decay: float, precision: str) -> None:
    """The decay rises to its full value, and the first update begins the average."""

    def rising(average: Any, value: Any, count: Any) -> Any:
        kept = min(decay, (1 + int(count)) / (10 + int(count)))
        return kept * average + (1 - kept) * value

    own = torch.nn.Conv3d(1, 3, (1, 2, 2), dtype=torch.float64)
    averaged = torch.optim.swa_utils.AveragedModel(own, avg_fn=rising)
    rng, keys = np.random.default_rng(0), {"threads": 1, "loss": "square", "precision": precision}
    optimizer = Optimizer(kind, ema=decay)
    with model_of(NET, (2, 3, 3), optimizer=optimizer, conv="direct", **keys) as model:
        assert same(model.averaged_parameters, model.parameters)
        for _ in range(6):
            x, target = rng.normal(size=(1, 1, 2, 4, 4)), rng.normal(size=(1, 3, 2, 3, 3))
            model.step(x, target, learning_rate=0.05)
            filters, bias = (np.float64(it) for it in model.parameters.values())
            with torch.no_grad():
                own.weight.copy_(torch.tensor(filters.reshape(own.weight.shape)))
                own.bias.copy_(torch.tensor(bias))
            averaged.update_parameters(own)
            found = model.averaged_parameters
            tolerance = 1e-12 if precision == "float64" else 1e-6
            for name, theirs in zip(
                found, (averaged.module.weight, averaged.module.bias), strict=True
            ):
                wanted = theirs.detach().numpy().reshape(found[name].shape)
                np.testing.assert_allclose(found[name], wanted, rtol=tolerance, atol=tolerance)


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in one)


def test_an_average_changes_no_weight() -> None:
    rng, found = np.random.default_rng(0), []
    batches = [(rng.normal(size=(1, 1, 2, 4, 4)), rng.normal(size=(1, 3, 2, 3, 3))) for _ in "123"]
    for ema in (None, 0.9):
        optimizer = Optimizer("adam", ema=ema)
        with model_of(NET, (2, 3, 3), optimizer=optimizer, loss="square", conv="direct") as model:
            for x, target in batches:
                model.step(x, target, learning_rate=0.05)
            found.append(model.parameters)
    assert same(*found)
