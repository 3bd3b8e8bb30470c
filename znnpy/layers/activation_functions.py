"""The activation functions that nodes apply, with their gradients, in float64; the registry `FUNCTIONS`.

A gradient takes the node's values and the gradient after the function and returns the gradient before it. It uses
the function's own value where the slope follows from that, else (`needs_sum`) the sum before the function; at a
kink it takes the slope of the left side, as the kernels do. The kernels are
`znnpy_kernels.layers.activation_functions.ACTIVATIONS`, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from znnpy.errors import NetworkError
from znnpy.layers.types import Array, Held
from znnpy.registry import Registry

CHANNELS = 1  # axis of the channels in (batch, channel, z, y, x)


class Shape(Protocol):
    """The parameters that shape a function; each function reads those that it knows."""

    @property
    def slope(self) -> float:
        """Negative slope of leaky_relu, alpha of elu."""

    @property
    def amplitude(self) -> float:
        """Of tanh: amplitude * tanh(gain * x)."""

    @property
    def gain(self) -> float:
        """Of tanh: amplitude * tanh(gain * x)."""

    @property
    def slopes(self) -> Array:
        """Of prelu, (channels, 1, 1, 1), or one for all: learned negative slopes."""


@dataclass(frozen=True)
class Shaped:
    """The shape parameters of one node, as plain values."""

    slope: float = 0.01
    amplitude: float = 1.0
    gain: float = 1.0
    slopes: Array = field(default_factory=lambda: np.empty((0, 1, 1, 1)))


@dataclass(frozen=True, kw_only=True)
class Function:
    """One activation function.

    `value(x, shape)`, `gradient(y, g, shape)`: float64 arrays (batch, channel, z, y, x). `needs_sum`: the slope does
    not follow from the value; then the gradient is `gradient(x, g, shape)`, and training keeps x beside the values.
    `held`: arrays (channels,) that a node keeps for it, by their names in `Shape`; `held_gradients(x, g, shape)`:
    gradients of those that are learned. `shaped`: keys of a node that this function reads. `slope`: default of that
    key. `unbounded`: it reaches every value and is nowhere flat. `pointwise`: a value depends on the same voxel and
    channel alone (not so softmax). `passes_on`: the gradient goes through unchanged, for losses of the sum before it.
    `kernels`: those of float32, as `znnpy_kernels.layers.activation_kernels.activation` makes them, or "module:name" of
    them, for a function that `znnpy_kernels.layers.activation_functions.ACTIVATIONS` does not list.
    `aliases`: other libraries' names for it, in small letters.
    """

    name: str
    value: Callable[[Array, Shape], Array]
    gradient: Callable[[Array, Array, Shape], Array]
    shaped: tuple[str, ...] = ()
    slope: float = 0.01
    needs_sum: bool = False
    held: Mapping[str, Held] = field(default_factory=dict)
    held_gradients: Callable[[Array, Array, Shape], dict[str, Array]] | None = None
    unbounded: bool = False
    pointwise: bool = True
    passes_on: bool = False
    kernels: Any = None
    aliases: tuple[str, ...] = ()


def softmax(logits: Array) -> Array:
    """Return the softmax over channels."""
    powers = np.exp(logits - logits.max(axis=CHANNELS, keepdims=True))
    shares: Array = powers / powers.sum(axis=CHANNELS, keepdims=True)
    return shares


def _softmax_gradient(y: Array, g: Array, shape: Shape) -> Array:
    gradient: Array = y * (g - (y * g).sum(axis=CHANNELS, keepdims=True))
    return gradient


def _logistic(x: Array, shape: Shape) -> Array:
    from scipy.special import expit  # slow to import, and float32 does without

    return np.asarray(expit(x))


def _silu_gradient(x: Array, g: Array, shape: Shape) -> Array:
    share = _logistic(x, shape)
    slope: Array = share * (1.0 + x * (1.0 - share)) * g
    return slope


def _gelu(x: Array, shape: Shape) -> Array:
    from scipy.special import ndtr

    return np.asarray(x * ndtr(x))


def _gelu_gradient(x: Array, g: Array, shape: Shape) -> Array:
    from scipy.special import ndtr

    density = np.exp(-0.5 * x * x) / np.sqrt(2.0 * np.pi)
    return np.asarray((ndtr(x) + x * density) * g)


def _bent(x: Array) -> Array:
    """Return the argument of the tanh that approximates 2 ndtr(x) - 1 in gelu_tanh (Hendrycks and Gimpel 2016)."""
    bent: Array = np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)
    return bent


def _gelu_tanh_gradient(x: Array, g: Array, shape: Shape) -> Array:
    y = np.tanh(_bent(x))
    steep = np.sqrt(2.0 / np.pi) * (1.0 + 3 * 0.044715 * x * x)
    slope: Array = (0.5 * (1.0 + y) + 0.5 * x * (1.0 - y * y) * steep) * g
    return slope


def _prelu_gradients(x: Array, g: Array, shape: Shape) -> dict[str, Array]:
    return {"slopes": np.where(x > 0, 0.0, x * g).sum(axis=(0, 2, 3, 4))}


# The names are repeated as a type, so that the type checker finds a misspelt one.
FunctionName = Literal[
    "linear",
    "relu",
    "leaky_relu",
    "prelu",
    "elu",
    "tanh",
    "logistic",
    "softmax",
    "forward_logistic",
    "softplus",
    "soft_sign",
    "silu",
    "hard_swish",
    "gelu",
    "gelu_tanh",
]
FUNCTIONS = Registry[Function](
    "function",
    (
        Function(
            name="linear",
            aliases=("identity",),
            value=lambda x, shape: x,
            gradient=lambda y, g, shape: g,
            unbounded=True,
        ),
        Function(
            name="relu",
            value=lambda x, shape: np.maximum(x, 0.0),
            gradient=lambda y, g, shape: np.where(y > 0, g, 0.0),
        ),
        Function(
            name="leaky_relu",
            aliases=("leakyrelu",),
            value=lambda x, shape: np.where(x > 0, x, shape.slope * x),
            gradient=lambda y, g, shape: np.where(y > 0, g, shape.slope * g),
            shaped=("slope",),
            unbounded=True,
        ),
        Function(
            name="prelu",
            value=lambda x, shape: np.where(x > 0, x, shape.slopes * x),
            gradient=lambda x, g, shape: np.where(x > 0, g, shape.slopes * g),
            needs_sum=True,
            held={"slopes": Held(0.25, True)},
            shaped=("tied",),
            held_gradients=_prelu_gradients,
            unbounded=True,
        ),
        Function(
            name="elu",
            value=lambda x, shape: np.where(x > 0, x, shape.slope * np.expm1(np.minimum(x, 0.0))),
            gradient=lambda y, g, shape: np.where(y > 0, g, (y + shape.slope) * g),
            slope=1.0,
            shaped=("slope",),
        ),
        Function(
            name="tanh",
            value=lambda x, shape: shape.amplitude * np.tanh(shape.gain * x),
            gradient=lambda y, g, shape: (
                g * shape.gain / shape.amplitude * (shape.amplitude**2 - y * y)
            ),
            shaped=("amplitude", "gain"),
        ),
        Function(
            name="logistic",
            aliases=("sigmoid",),
            value=_logistic,
            gradient=lambda y, g, shape: g * y * (1.0 - y),
        ),
        Function(
            name="softmax",
            value=lambda x, shape: softmax(x),
            gradient=_softmax_gradient,
            pointwise=False,
        ),
        Function(
            name="forward_logistic",
            value=_logistic,
            gradient=lambda y, g, shape: g,
            passes_on=True,
        ),
        Function(
            name="softplus",
            value=lambda x, shape: np.logaddexp(x, 0.0),
            gradient=lambda y, g, shape: -np.expm1(-y) * g,
        ),
        Function(
            name="soft_sign",
            aliases=("softsign",),
            value=lambda x, shape: x / (1.0 + np.abs(x)),
            gradient=lambda y, g, shape: (1.0 - np.abs(y)) ** 2 * g,
        ),
        Function(
            name="silu",
            aliases=("swish",),
            value=lambda x, shape: x * _logistic(x, shape),
            gradient=_silu_gradient,
            needs_sum=True,
        ),
        Function(
            name="hard_swish",
            aliases=("hardswish",),
            value=lambda x, shape: x * np.clip(x / 6.0 + 0.5, 0.0, 1.0),
            gradient=lambda x, g, shape: (
                np.where(x > 3, 1.0, np.where(x > -3, x / 3.0 + 0.5, 0.0)) * g
            ),
            needs_sum=True,
        ),
        Function(name="gelu", value=_gelu, gradient=_gelu_gradient, needs_sum=True),
        Function(
            name="gelu_tanh",
            value=lambda x, shape: 0.5 * x * (1.0 + np.tanh(_bent(x))),
            gradient=_gelu_tanh_gradient,
            needs_sum=True,
        ),
    ),
    key="function",
)


def function_of(name: str) -> Function:
    """Return the activation function of that name; NetworkError if there is none."""
    if name not in FUNCTIONS:
        raise NetworkError(f"function '{name}' is none of {', '.join(FUNCTIONS)}")
    return FUNCTIONS[name]
