"""Frozen parameters beside PyTorch's without gradients: they stay, and count in no norm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from znnpy import Hardware, Model, Optimizer, Training
from znnpy.errors import ConfigError

torch = pytest.importorskip("torch")

NET = {
    "layers": [
        {"conv": {"channels": 3, "size": [1, 2, 2], "function": "tanh"}},
        {"conv": {"channels": 2, "size": 1}},
    ]
}


def model(precision: Any = "float64", ema: float | None = None, **keys: Any) -> Model:
    optimizer = Optimizer("sgd", momentum=0.5, weight_decay=0.1, ema=ema)
    return Model(
        NET, (2, 3, 3), threads=1, optimizer=optimizer, loss="square", conv="direct",
        training=Training(**keys), hardware=Hardware(precision=precision),
    )  # fmt: skip


def batch(rng: np.random.Generator) -> tuple[Any, Any]:
    return rng.normal(size=(1, 1, 2, 4, 4)), rng.normal(size=(1, 2, 2, 3, 3))


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("clip_norm", [None, 0.01])
@pytest.mark.parametrize(
    "freeze", [["conv1"], ["conv1", "layer1"], ["layer*"], ["*2", "output"], ["conv?"]]
)
def test_updates(freeze: list[str], clip_norm: float | None, precision: str) -> None:
    rng = np.random.default_rng(0)
    tolerance = 1e-10 if precision == "float64" else 1e-5
    with model(precision, freeze=freeze, clip_norm=clip_norm, ema=0.5) as own:
        start = own.parameters
        theirs = {k: torch.tensor(np.float64(v), requires_grad=True) for k, v in start.items()}
        fixed = {n for n in start if any(torch_like(n, pattern) for pattern in freeze)}
        assert fixed < set(start)
        moving = {name: tensor for name, tensor in theirs.items() if name not in fixed}
        decaying = [t for t in moving.values() if t.ndim == 5]
        others = [t for t in moving.values() if t.ndim != 5]
        groups = [{"params": decaying, "weight_decay": 0.1}, {"params": others}]
        optimizer = torch.optim.SGD([g for g in groups if g["params"]], lr=0.1, momentum=0.5)
        for _ in range(3):
            x, target = batch(rng)
            gradients = own.loss_and_gradients(x, target)[1]
            for name, tensor in moving.items():
                tensor.grad = torch.tensor(np.float64(gradients[name]))
            if clip_norm:
                torch.nn.utils.clip_grad_norm_(moving.values(), clip_norm)
            optimizer.step()
            own.step(x, target, learning_rate=0.1)
            for name, values in own.parameters.items():
                wanted = theirs[name].detach().numpy()
                np.testing.assert_allclose(values, wanted, rtol=tolerance, atol=tolerance)
        for name in fixed:
            assert own.parameters[name].tobytes() == start[name].tobytes()
            assert own.averaged_parameters[name].tobytes() == start[name].tobytes()


def torch_like(name: str, pattern: str) -> bool:
    """Whether a name fits, of patterns with one sign at most."""
    for sign in "*?":
        start, found, end = pattern.partition(sign)
        if found:
            fits = name.startswith(start) and name.endswith(end)
            return fits and (sign == "*" or len(name) == len(pattern))
    return name == pattern


@pytest.mark.parametrize(
    ("freeze", "words"),
    [
        (
            ["conv1", "conv9"],
            r"freeze.1: 'conv9' names no parameter .*conv1, conv2, layer1, output",
        ),
        (["*"], r"freeze.0: freezes all parameters"),
        ([""], r"freeze"),
    ],
)
def test_what_cannot_be_frozen(freeze: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words), model(freeze=freeze):
        pass
