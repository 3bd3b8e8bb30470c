"""Transfer functions and their derivatives, computed from the function's own value, in float64.

A derivative takes the node's values and the gradient after the function and returns the gradient
before it; at a kink it takes the side of smaller values, as the kernels do.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from znnpy.network.types import Node

Array = NDArray[np.float64]
IMAGES = 1


def apply(node: Node, total: Array) -> Array:
    """The node's transfer function on its sum (bias included); (batch, image, z, y, x)."""
    return _FORWARD[node.function](total, node.slope)


def gradient_before(node: Node, values: Array, gradient: Array) -> Array:
    """Gradient for the sum that went into the function, from the gradient for the values."""
    return _BACKWARD[node.function](values, gradient, node.slope)


def softmax(logits: Array) -> Array:
    """Softmax over images."""
    powers = np.exp(logits - logits.max(axis=IMAGES, keepdims=True))
    shares: Array = powers / powers.sum(axis=IMAGES, keepdims=True)
    return shares


def _softmax_gradient(y: Array, g: Array) -> Array:
    gradient: Array = y * (g - (y * g).sum(axis=IMAGES, keepdims=True))
    return gradient


_FORWARD: dict[str, Callable[[Array, float], Array]] = {
    "linear": lambda x, slope: x,
    "relu": lambda x, slope: np.maximum(x, 0.0),
    "leaky_relu": lambda x, slope: np.where(x > 0, x, slope * x),
    "elu": lambda x, slope: np.where(x > 0, x, slope * np.expm1(np.minimum(x, 0.0))),
    "tanh": lambda x, slope: np.tanh(x),
    "logistic": lambda x, slope: np.asarray(expit(x)),
    "forward_logistic": lambda x, slope: np.asarray(expit(x)),
    "softmax": lambda x, slope: softmax(x),
}

_BACKWARD: dict[str, Callable[[Array, Array, float], Array]] = {
    "linear": lambda y, g, slope: g,
    "relu": lambda y, g, slope: np.where(y > 0, g, 0.0),
    "leaky_relu": lambda y, g, slope: np.where(y > 0, g, slope * g),
    "elu": lambda y, g, slope: np.where(y > 0, g, (y + slope) * g),
    "tanh": lambda y, g, slope: g * (1.0 - y * y),
    "logistic": lambda y, g, slope: g * y * (1.0 - y),
    "forward_logistic": lambda y, g, slope: g,
    "softmax": lambda y, g, slope: _softmax_gradient(y, g),
}
