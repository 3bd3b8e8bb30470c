"""Weight standardisation (Qiao et al. 2019): convolutions by filters of mean 0 and variance 1.

Filters are (out, in, z, y, x); the statistics are of each output image's, in float64.
"""

from __future__ import annotations

import numpy as np

from znnpy.layers.types import Array

EPSILON = 1e-5
"""Added to the variance."""

_OVER = (1, 2, 3, 4)


def standardized(filters: Array) -> Array:
    """What a convolution multiplies with in place of the filters that it learns."""
    return (filters - _mean(filters)) * _inverse(filters)


def standardized_gradient(filters: Array, gradient: Array) -> Array:
    """The gradient by the filters from that by what is made of them."""
    inverse, unit = _inverse(filters), standardized(filters)
    return inverse * (gradient - _mean(gradient) - unit * _mean(gradient * unit))


def _mean(filters: Array) -> Array:
    found: Array = filters.mean(axis=_OVER, keepdims=True)
    return found


def _inverse(filters: Array) -> Array:
    return np.asarray(1 / np.sqrt(filters.var(axis=_OVER, keepdims=True) + EPSILON))
