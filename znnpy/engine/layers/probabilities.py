"""From output values to what a loss takes them for, in NumPy and compiled code."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from znnpy_kernels.layers.pointwise import logistic_values

Array = npt.NDArray[Any]
IMAGES = -4  # axis of the images in (..., image, z, y, x)


def probabilities(loss: str, values: Array, out: Array | None = None) -> Array:
    """What output values (..., image, z, y, x) mean to a loss, in their dtype.

    The logistic for binomial_cross_entropy, softmax over images for softmax, the values themselves for
    square. Right to a few units in the last place for any logit. `out`: where to write them;
    otherwise a new array, or `values` itself.
    """
    found = _probabilities(loss, values, out)
    if out is None or found is out:
        return found
    out[...] = found
    return out


def _probabilities(loss: str, values: Array, out: Array | None) -> Array:
    if loss == "square":
        return values
    if loss == "softmax":
        with np.errstate(over="ignore"):  # a difference of -Inf is a share of 0
            raised = np.exp(values - values.max(axis=IMAGES, keepdims=True))
        return np.asarray(raised / raised.sum(axis=IMAGES, keepdims=True))
    if values.dtype == np.float32:
        return _logistic(values, np.empty_like(values) if out is None else out)
    small = np.exp(-np.abs(values))
    return np.asarray(np.where(values > 0, 1, small) / (1 + small), values.dtype)


def _logistic(values: Array, out: Array) -> Array:
    """Of float32, in pieces that lie in one row in memory."""
    if values.flags.c_contiguous and out.flags.c_contiguous:
        logistic_values(values.ctypes.data, out.ctypes.data, values.size)
    elif values.ndim == 1:
        out[...] = _logistic(values.copy(), np.empty_like(values))
    else:
        for part, target in zip(values, out, strict=True):
            _logistic(part, target)
    return out
