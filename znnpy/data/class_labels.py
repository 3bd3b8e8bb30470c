"""Class numbers of predictions: the channel that is largest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.data.volume import Array

Labels = NDArray[Any]
MOST = 1 << 16  # numbers that uint16 holds


def label_type(highest: int) -> np.dtype[Any]:
    """Return the type of labels up to a class number: uint8, or uint16."""
    return np.dtype(np.uint8 if highest < 1 << 8 else np.uint16)


def class_numbers(values: Array, first: int = 0) -> Labels:
    """Return for values (c, z, y, x) the number `first` + channel of the largest, of equal ones the first: (z, y, x).

    One channel is the probability of the second of two classes: it is that one above a half, of integers above half
    of their largest.
    """
    count = max(2, len(values))
    kind = label_type(first + count - 1)
    if len(values) == 1:
        half = np.iinfo(values.dtype).max / 2 if values.dtype.kind in "ui" else 0.5
        return np.asarray((values[0] > half).astype(kind) + kind.type(first))
    # Channel by channel, in the type of the labels: numpy's argmax makes int64, and walks all channels of a voxel.
    best, found = values[0].copy(), np.full(values.shape[1:], first, kind)
    for channel in range(1, len(values)):
        larger = values[channel] > best
        np.copyto(best, values[channel], where=larger)
        found[larger] = first + channel
    return found
