"""Functions of nodes in float64 beside PyTorch: values, gradients, and those of learned slopes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from znnpy.layers.activation_functions import FUNCTIONS, Shaped

torch = pytest.importorskip("torch")
from torch.nn import functional as F  # noqa: E402, N812

SLOPES = np.array([-0.3, 0.0, 0.25, 1.5])
SHAPE = Shaped(0.2, 1.7159, 0.6666, SLOPES[:, None, None, None])
PEERS: dict[str, Callable[[Any, Any], Any]] = {
    "linear": lambda x, slopes: 1 * x,
    "relu": lambda x, slopes: F.relu(x),
    "leaky_relu": lambda x, slopes: F.leaky_relu(x, 0.2),
    "prelu": F.prelu,
    "elu": lambda x, slopes: F.elu(x, 0.2),
    "tanh": lambda x, slopes: 1.7159 * torch.tanh(0.6666 * x),
    "logistic": lambda x, slopes: torch.sigmoid(x),
    "softmax": lambda x, slopes: F.softmax(x, dim=1),
    "softplus": lambda x, slopes: F.softplus(x),
    "soft_sign": lambda x, slopes: F.softsign(x),
    "silu": lambda x, slopes: F.silu(x),
    "hard_swish": lambda x, slopes: F.hardswish(x),
    "gelu": lambda x, slopes: F.gelu(x),
    "gelu_tanh": lambda x, slopes: F.gelu(x, approximate="tanh"),
}


def test_all_functions_have_a_peer() -> None:
    assert set(PEERS) == {name for name, it in FUNCTIONS.items() if not it.passes_on}


@pytest.mark.parametrize("name", PEERS)
def test_values_and_gradients_are_pytorchs(name: str) -> None:
    function, rng = FUNCTIONS[name], np.random.default_rng(0)
    image, gradient = 4 * rng.standard_normal((2, 2, 4, 3, 4, 5))
    x = torch.tensor(image, requires_grad=True)
    slopes = torch.tensor(SLOPES, requires_grad=True)
    y = PEERS[name](x, slopes)
    y.backward(torch.tensor(gradient))
    value = function.value(image, SHAPE)
    np.testing.assert_allclose(value, y.detach().numpy(), rtol=1e-6, atol=1e-9)
    found = function.gradient(image if function.needs_sum else value, gradient, SHAPE)
    np.testing.assert_allclose(found, x.grad.numpy(), rtol=1e-5, atol=1e-8)
    if function.held_gradients is not None:
        held = function.held_gradients(image, gradient, SHAPE)
        np.testing.assert_allclose(held["slopes"], slopes.grad.numpy(), rtol=1e-9)
