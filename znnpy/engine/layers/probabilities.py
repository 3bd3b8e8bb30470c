"""Turns output values into probabilities, by the logistic or softmax that a loss implies."""

from __future__ import annotations

import numpy as np
from znnpy_kernels.layers.pointwise import logistic_values

from znnpy.learning.readings import LOGITS, Array, Reading


def probabilities(reading: Reading, values: Array, out: Array | None = None) -> Array:
    """Return the probabilities that output values (..., channel, z, y, x) stand for, in their dtype.

    Right to a few units in the last place for any logit. `out`: where to write them; without it a new array, or
    `values` itself if the loss takes them as they are.
    """
    # The usual case by compiled code: NumPy's way makes several arrays as large.
    if reading == LOGITS and values.dtype == np.float32:
        return _logistic(values, np.empty_like(values) if out is None else out)
    found = reading.probabilities(values)
    if out is None:
        return found
    out[...] = found
    return out


def _logistic(values: Array, out: Array) -> Array:
    """Write the logistic of float32 values to `out`, piece by contiguous piece."""
    if values.flags.c_contiguous and out.flags.c_contiguous:
        logistic_values(values.ctypes.data, out.ctypes.data, values.size)
    # Strided lines are copied; everything above is taken apart until its parts are contiguous.
    elif values.ndim == 1:
        out[...] = _logistic(values.copy(), np.empty_like(values))
    else:
        for part, target in zip(values, out, strict=True):
            _logistic(part, target)
    return out
