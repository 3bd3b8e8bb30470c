"""Class numbers of predictions: the channel that is largest, or the regions that a voxel lies in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.data.volume import Array

Labels = NDArray[Any]
MOST = 1 << 16  # numbers that uint16 holds


def first_class_of(found: Any) -> int | None:
    """Return the attribute `first_class`, as JSON or HDF5 hold it; None unless it is the number of a class."""
    whole = isinstance(found, int | np.integer) and not isinstance(found, bool)
    return int(found) if whole and 0 <= found < MOST else None


def label_type(highest: int) -> np.dtype[Any]:
    """Return the type of labels up to a class number: uint8, or uint16."""
    return np.dtype(np.uint8 if highest < 1 << 8 else np.uint16)


@dataclass(frozen=True)
class Numbering:
    """Numbers of channels: of the largest, the first of them `first`; or, of `regions`, the label that each paints.

    Regions may overlap: later ones lie over earlier ones, and 0 is where none is.
    """

    first: int = 0
    regions: tuple[int, ...] | None = None

    def type(self, channels: int) -> np.dtype[Any]:
        """Return the type of the labels of so many channels."""
        return label_type(max(self.regions or [self.first + max(2, channels) - 1]))

    def labels(self, values: Array, half: float | None = None) -> Labels:
        """Return the labels (z, y, x) of values (c, z, y, x); `half`: as of `region_labels`."""
        if self.regions is None:
            return class_numbers(values, self.first, half)
        return region_labels(values, self.regions, half)


FROM_0 = Numbering()


def region_labels(values: Array, regions: Sequence[int], half: float | None = None) -> Labels:
    """Return for values (c, z, y, x) the label of the last channel that is above a half, 0 where none is: (z, y, x).

    `half`: a half of probabilities, or of integers half of their largest, unless it is given, as 0 of logits.
    """
    found, least = (
        np.zeros(values.shape[1:], label_type(max(regions))),
        half_of(values.dtype) if half is None else half,
    )
    for channel, label in zip(values, regions, strict=True):
        found[channel > least] = label
    return found


def predicted_labels(values: Array, numbering: Numbering) -> Labels:
    """Return the labels (z, y, x) of what was predicted (c, z, y, x)."""
    return numbering.labels(values)


def half_of(dtype: np.dtype[Any]) -> float:
    """Return a half, of integers that of their largest."""
    return float(np.iinfo(dtype).max / 2) if dtype.kind in "ui" else 0.5


def class_numbers(values: Array, first: int = 0, half: float | None = None) -> Labels:
    """Return for values (c, z, y, x) the number `first` + channel of the largest, of equal ones the first: (z, y, x).

    One channel is the probability of the second of two classes: it is that one above a `half`, as of `region_labels`.
    """
    count = max(2, len(values))
    kind = label_type(first + count - 1)
    if len(values) == 1:
        least = half_of(values.dtype) if half is None else half
        return np.asarray((values[0] > least).astype(kind) + kind.type(first))
    # Channel by channel, in the type of the labels: numpy's argmax makes int64, and walks all channels of a voxel.
    best, found = values[0].copy(), np.full(values.shape[1:], first, kind)
    for channel in range(1, len(values)):
        larger = values[channel] > best
        np.copyto(best, values[channel], where=larger)
        found[larger] = first + channel
    return found
