"""Kernels of transfer functions on channel blocks, by function; how they go over rows says `function_rows`."""

from __future__ import annotations

from typing import Any

from znnpy_kernels.layers.activation_functions import (
    elu,
    elu_back,
    elu_slope,
    gelu,
    gelu_back,
    gelu_tanh,
    gelu_tanh_back,
    hard_swish,
    hard_swish_back,
    leaky_relu,
    leaky_relu_back,
    linear,
    linear_back,
    logistic,
    logistic_back,
    prelu,
    prelu_back,
    relu,
    relu_back,
    silu,
    silu_back,
    soft_sign,
    soft_sign_back,
    softplus,
    softplus_back,
    tanh,
    tanh_back,
)
from znnpy_kernels.layers.activation_rows import (
    BACKWARD_WORDS,
    FORWARD_WORDS,
    NORMED_WORDS,
    backward,
    forward,
    normed,
)
from znnpy_kernels.machine.abi import Kernel, kernel


@kernel(FORWARD_WORDS)
def transfer_linear(args: Any, worker: int) -> None:
    """y = x + bias."""
    forward(args, linear)


@kernel(FORWARD_WORDS)
def transfer_relu(args: Any, worker: int) -> None:
    """y = max(x + bias, 0)."""
    forward(args, relu)


@kernel(FORWARD_WORDS)
def transfer_leaky_relu(args: Any, worker: int) -> None:
    """y = v if v > 0 else slope * v, v = x + bias."""
    forward(args, leaky_relu)


@kernel(FORWARD_WORDS)
def transfer_prelu(args: Any, worker: int) -> None:
    """y = v if v > 0 else slopes * v; v is left at `source`."""
    forward(args, prelu, 1)


@kernel(FORWARD_WORDS)
def transfer_elu(args: Any, worker: int) -> None:
    """y = v if v > 0 else slope * (e^v - 1), v = x + bias."""
    forward(args, elu)


@kernel(FORWARD_WORDS)
def transfer_tanh(args: Any, worker: int) -> None:
    """y = amplitude * tanh(gain * (x + bias))."""
    forward(args, tanh)


@kernel(FORWARD_WORDS)
def transfer_logistic(args: Any, worker: int) -> None:
    """y = 1 / (1 + e^-(x + bias)); pad lanes 0."""
    forward(args, logistic, 0, 1)


@kernel(FORWARD_WORDS)
def transfer_softplus(args: Any, worker: int) -> None:
    """y = log(1 + e^(x + bias)); pad lanes 0."""
    forward(args, softplus, 0, 1)


@kernel(FORWARD_WORDS)
def transfer_soft_sign(args: Any, worker: int) -> None:
    """y = v / (1 + |v|), v = x + bias."""
    forward(args, soft_sign)


@kernel(FORWARD_WORDS)
def transfer_silu(args: Any, worker: int) -> None:
    """y = v / (1 + e^-v); v = x + bias is left at `source`."""
    forward(args, silu, 1)


@kernel(FORWARD_WORDS)
def transfer_hard_swish(args: Any, worker: int) -> None:
    """y = v * min(max(v + 3, 0), 6) / 6; v = x + bias is left at `source`."""
    forward(args, hard_swish, 1)


@kernel(FORWARD_WORDS)
def transfer_gelu(args: Any, worker: int) -> None:
    """y = v * P(v), P the normal distribution; v = x + bias is left at `source`."""
    forward(args, gelu, 1)


@kernel(FORWARD_WORDS)
def transfer_gelu_tanh(args: Any, worker: int) -> None:
    """y = v / 2 * (1 + tanh(sqrt(2 / pi) (v + 0.044715 v^3))); v = x + bias is left at `source`."""
    forward(args, gelu_tanh, 1)


@kernel(BACKWARD_WORDS)
def backward_linear(args: Any, worker: int) -> None:
    """target = gradient; `output` is not read (give any address)."""
    backward(args, linear_back)


@kernel(BACKWARD_WORDS)
def backward_relu(args: Any, worker: int) -> None:
    """target = gradient where y > 0 (or y is NaN), else 0."""
    backward(args, relu_back)


@kernel(BACKWARD_WORDS)
def backward_leaky_relu(args: Any, worker: int) -> None:
    """target = gradient where y > 0, else slope * gradient."""
    backward(args, leaky_relu_back)


@kernel(BACKWARD_WORDS)
def backward_prelu(args: Any, worker: int) -> None:
    """target = gradient where v > 0, else slopes * gradient, v at `output`."""
    backward(args, prelu_back)


@kernel(BACKWARD_WORDS)
def backward_elu(args: Any, worker: int) -> None:
    """target = gradient where y > 0, else gradient * (y + slope)."""
    backward(args, elu_back)


@kernel(BACKWARD_WORDS)
def backward_tanh(args: Any, worker: int) -> None:
    """target = gradient * gain / amplitude * (amplitude^2 - y^2)."""
    backward(args, tanh_back)


@kernel(BACKWARD_WORDS)
def backward_logistic(args: Any, worker: int) -> None:
    """target = gradient * y * (1 - y)."""
    backward(args, logistic_back)


@kernel(BACKWARD_WORDS)
def backward_softplus(args: Any, worker: int) -> None:
    """target = gradient * (1 - e^-y)."""
    backward(args, softplus_back)


@kernel(BACKWARD_WORDS)
def backward_soft_sign(args: Any, worker: int) -> None:
    """target = gradient * (1 - |y|)^2."""
    backward(args, soft_sign_back)


@kernel(BACKWARD_WORDS)
def backward_silu(args: Any, worker: int) -> None:
    """target = gradient * silu'(v), v at `output`."""
    backward(args, silu_back)


@kernel(BACKWARD_WORDS)
def backward_hard_swish(args: Any, worker: int) -> None:
    """target = gradient * hard_swish'(v), v at `output`."""
    backward(args, hard_swish_back)


@kernel(BACKWARD_WORDS)
def backward_gelu(args: Any, worker: int) -> None:
    """target = gradient * gelu'(v), v at `output`."""
    backward(args, gelu_back)


@kernel(BACKWARD_WORDS)
def backward_gelu_tanh(args: Any, worker: int) -> None:
    """target = gradient * gelu_tanh'(v), v at `output`."""
    backward(args, gelu_tanh_back)


@kernel(NORMED_WORDS)
def normed_linear(args: Any, worker: int) -> None:
    """Of linear."""
    normed(args, linear, linear_back)


@kernel(NORMED_WORDS)
def normed_relu(args: Any, worker: int) -> None:
    """Of relu."""
    normed(args, linear, relu_back)


@kernel(NORMED_WORDS)
def normed_leaky_relu(args: Any, worker: int) -> None:
    """Of leaky_relu."""
    normed(args, linear, leaky_relu_back)


@kernel(NORMED_WORDS)
def normed_prelu(args: Any, worker: int) -> None:
    """Of prelu."""
    normed(args, linear, prelu_back)


@kernel(NORMED_WORDS)
def normed_elu(args: Any, worker: int) -> None:
    """Of elu."""
    normed(args, linear, elu_slope)


@kernel(NORMED_WORDS)
def normed_tanh(args: Any, worker: int) -> None:
    """Of tanh."""
    normed(args, tanh, tanh_back)


@kernel(NORMED_WORDS)
def normed_logistic(args: Any, worker: int) -> None:
    """Of logistic."""
    normed(args, logistic, logistic_back)


@kernel(NORMED_WORDS)
def normed_softplus(args: Any, worker: int) -> None:
    """Of softplus."""
    normed(args, softplus, softplus_back)


@kernel(NORMED_WORDS)
def normed_soft_sign(args: Any, worker: int) -> None:
    """Of soft_sign."""
    normed(args, soft_sign, soft_sign_back)


@kernel(NORMED_WORDS)
def normed_silu(args: Any, worker: int) -> None:
    """Of silu."""
    normed(args, linear, silu_back)


@kernel(NORMED_WORDS)
def normed_hard_swish(args: Any, worker: int) -> None:
    """Of hard_swish."""
    normed(args, linear, hard_swish_back)


@kernel(NORMED_WORDS)
def normed_gelu(args: Any, worker: int) -> None:
    """Of gelu."""
    normed(args, linear, gelu_back)


@kernel(NORMED_WORDS)
def normed_gelu_tanh(args: Any, worker: int) -> None:
    """Of gelu_tanh."""
    normed(args, linear, gelu_tanh_back)


# forward_logistic (ZNN): the logistic forward, the identity backward, for costs made on its input.
FORWARD: dict[str, Kernel] = {
    "linear": transfer_linear,
    "relu": transfer_relu,
    "leaky_relu": transfer_leaky_relu,
    "prelu": transfer_prelu,
    "elu": transfer_elu,
    "tanh": transfer_tanh,
    "logistic": transfer_logistic,
    "forward_logistic": transfer_logistic,
    "softplus": transfer_softplus,
    "soft_sign": transfer_soft_sign,
    "silu": transfer_silu,
    "hard_swish": transfer_hard_swish,
    "gelu": transfer_gelu,
    "gelu_tanh": transfer_gelu_tanh,
}
BACKWARD: dict[str, Kernel] = {
    "linear": backward_linear,
    "relu": backward_relu,
    "leaky_relu": backward_leaky_relu,
    "prelu": backward_prelu,
    "elu": backward_elu,
    "tanh": backward_tanh,
    "logistic": backward_logistic,
    "forward_logistic": backward_linear,
    "softplus": backward_softplus,
    "soft_sign": backward_soft_sign,
    "silu": backward_silu,
    "hard_swish": backward_hard_swish,
    "gelu": backward_gelu,
    "gelu_tanh": backward_gelu_tanh,
}
NORMED: dict[str, Kernel] = {
    "linear": normed_linear,
    "relu": normed_relu,
    "leaky_relu": normed_leaky_relu,
    "prelu": normed_prelu,
    "elu": normed_elu,
    "tanh": normed_tanh,
    "logistic": normed_logistic,
    "forward_logistic": normed_linear,
    "softplus": normed_softplus,
    "soft_sign": normed_soft_sign,
    "silu": normed_silu,
    "hard_swish": normed_hard_swish,
    "gelu": normed_gelu,
    "gelu_tanh": normed_gelu_tanh,
}
