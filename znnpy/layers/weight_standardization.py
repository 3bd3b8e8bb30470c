"""Weight standardisation (Qiao et al. 2019) in float64: filters are used with mean 0 and variance 1.

Filters are (out, in, z, y, x); the statistics are of the filters of each output channel.
"""

from __future__ import annotations

import numpy as np

from znnpy.layers.types import Array

EPSILON = 1e-5
"""Added to the variance, so that equal filters divide by no 0."""

_OVER = (1, 2, 3, 4)


def standardized(filters: Array) -> Array:
    """Return the filters that a convolution uses in place of the learned ones."""
    return (filters - _mean(filters)) * _inverse(filters)


def standardized_gradient(filters: Array, gradient: Array) -> Array:
    """Return the gradient by the learned filters from that by `standardized`."""
    inverse, unit = _inverse(filters), standardized(filters)
    return inverse * (gradient - _mean(gradient) - unit * _mean(gradient * unit))


def _mean(filters: Array) -> Array:
    found: Array = filters.mean(axis=_OVER, keepdims=True)
    return found


def _inverse(filters: Array) -> Array:
    return np.asarray(1 / np.sqrt(filters.var(axis=_OVER, keepdims=True) + EPSILON))
