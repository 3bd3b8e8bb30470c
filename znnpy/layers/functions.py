"""The functions that nodes apply, with their gradients, in float64.

A gradient is computed from the function's own value: it takes the node's values and the gradient after
the function and returns the gradient before it; at a kink it takes the side of smaller values, as the
kernels do. The kernels are `znnpy_kernels.layers.transfer.FORWARD` and `BACKWARD`, by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from znnpy.errors import NetworkError
from znnpy.layers.kind import Array

IMAGES = 1  # the axis of images


class Shape(Protocol):
    """The numbers that shape a function: each takes those that it knows."""

    @property
    def slope(self) -> float:
        """Negative slope of leaky_relu, alpha of elu."""

    @property
    def amplitude(self) -> float:
        """Of tanh: amplitude * tanh(gain * x)."""

    @property
    def gain(self) -> float:
        """Of tanh."""


@dataclass(frozen=True, kw_only=True)
class Function:
    """One transfer function.

    `value(x, shape)`, `gradient(y, g, shape)`: arrays (batch, image, z, y, x). `shaped`: the node's keys
    that are for this function and those that have them too. `slope`: where a config says none.
    `unbounded`: it has a slope everywhere and reaches every value. `pointwise`: a voxel of an image
    depends on that voxel alone; others are for output nodes. `passes_on`: the gradient goes through
    unchanged, for losses made on what comes before.
    """

    name: str
    value: Callable[[Array, Shape], Array]
    gradient: Callable[[Array, Array, Shape], Array]
    shaped: tuple[str, ...] = ()
    slope: float = 0.01
    unbounded: bool = False
    pointwise: bool = True
    passes_on: bool = False


def softmax(logits: Array) -> Array:
    """Softmax over images."""
    powers = np.exp(logits - logits.max(axis=IMAGES, keepdims=True))
    shares: Array = powers / powers.sum(axis=IMAGES, keepdims=True)
    return shares


def _softmax_gradient(y: Array, g: Array, shape: Shape) -> Array:
    gradient: Array = y * (g - (y * g).sum(axis=IMAGES, keepdims=True))
    return gradient


def _logistic(x: Array, shape: Shape) -> Array:
    from scipy.special import expit  # seldom needed, and slow to import

    return np.asarray(expit(x))


# The names once more: a misspelt one is then found by the type checker.
FunctionName = Literal[
    "linear",
    "relu",
    "leaky_relu",
    "elu",
    "tanh",
    "logistic",
    "softmax",
    "forward_logistic",
    "softplus",
    "soft_sign",
]
_ALL = (
    Function(
        name="linear",
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
        value=lambda x, shape: np.where(x > 0, x, shape.slope * x),
        gradient=lambda y, g, shape: np.where(y > 0, g, shape.slope * g),
        unbounded=True,
    ),
    Function(
        name="elu",
        value=lambda x, shape: np.where(x > 0, x, shape.slope * np.expm1(np.minimum(x, 0.0))),
        gradient=lambda y, g, shape: np.where(y > 0, g, (y + shape.slope) * g),
        slope=1.0,
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
        value=lambda x, shape: x / (1.0 + np.abs(x)),
        gradient=lambda y, g, shape: (1.0 - np.abs(y)) ** 2 * g,
    ),
)
FUNCTIONS: dict[str, Function] = {function.name: function for function in _ALL}


def function_of(name: str) -> Function:
    """The function of that name; NetworkError if there is none."""
    if name not in FUNCTIONS:
        raise NetworkError(f"function '{name}' is none of {', '.join(FUNCTIONS)}")
    return FUNCTIONS[name]
