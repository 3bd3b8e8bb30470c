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
    return _FORWARD[node.function](total, node)


def gradient_before(node: Node, values: Array, gradient: Array) -> Array:
    """Gradient for the sum that went into the function, from the gradient for the values."""
    return _BACKWARD[node.function](values, gradient, node)


def softmax(logits: Array) -> Array:
    """Softmax over images."""
    powers = np.exp(logits - logits.max(axis=IMAGES, keepdims=True))
    shares: Array = powers / powers.sum(axis=IMAGES, keepdims=True)
    return shares


def _softmax_gradient(y: Array, g: Array) -> Array:
    gradient: Array = y * (g - (y * g).sum(axis=IMAGES, keepdims=True))
    return gradient


_FORWARD: dict[str, Callable[[Array, Node], Array]] = {
    "linear": lambda x, node: x,
    "relu": lambda x, node: np.maximum(x, 0.0),
    "leaky_relu": lambda x, node: np.where(x > 0, x, node.slope * x),
    "elu": lambda x, node: np.where(x > 0, x, node.slope * np.expm1(np.minimum(x, 0.0))),
    "tanh": lambda x, node: node.amplitude * np.tanh(node.gain * x),
    "logistic": lambda x, node: np.asarray(expit(x)),
    "forward_logistic": lambda x, node: np.asarray(expit(x)),
    "softmax": lambda x, node: softmax(x),
}

_BACKWARD: dict[str, Callable[[Array, Array, Node], Array]] = {
    "linear": lambda y, g, node: g,
    "relu": lambda y, g, node: np.where(y > 0, g, 0.0),
    "leaky_relu": lambda y, g, node: np.where(y > 0, g, node.slope * g),
    "elu": lambda y, g, node: np.where(y > 0, g, (y + node.slope) * g),
    "tanh": lambda y, g, node: g * node.gain / node.amplitude * (node.amplitude**2 - y * y),
    "logistic": lambda y, g, node: g * y * (1.0 - y),
    "forward_logistic": lambda y, g, node: g,
    "softmax": lambda y, g, node: _softmax_gradient(y, g),
}
