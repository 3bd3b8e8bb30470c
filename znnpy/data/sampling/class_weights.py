"""Class balancing: weights by which positive and negative voxels of each target channel count the same in total.

Where channels are classes, of which each voxel has one, all of these count the same; a voxel has one weight then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from znnpy.data.sampling.label_checks import read_counted
from znnpy.data.sampling.targets import Target
from znnpy.data.values.moments import statistics_slabs
from znnpy.data.volume import Triple, Volume

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Rebalance = Literal["none", "patch", "volume"]


@dataclass(frozen=True)
class ClassCounts:
    """Total weight of positive (target above 0.5) and negative voxels, float64 (K,) each."""

    positive: Float64
    negative: Float64

    def __add__(self, other: ClassCounts) -> ClassCounts:
        """Return the counts of two pieces together."""
        return ClassCounts(self.positive + other.positive, self.negative + other.negative)


def count_patch(target: Float32, weight: Float32) -> ClassCounts:
    """Return the counts of one patch; arrays (K, z, y, x)."""
    above = target > 0.5
    axes = (1, 2, 3)
    positive = np.where(above, weight, 0).sum(axis=axes, dtype=np.float64)
    return ClassCounts(positive, weight.sum(axis=axes, dtype=np.float64) - positive)


def count_volume(
    labels: Volume, mask: Volume | None, target: Target, shift: Triple = (0, 0, 0)
) -> ClassCounts:
    """Return the counts of a whole volume (of very large ones: of evenly spaced slabs), read slab by slab.

    Voxel v of the labels is voxel v + shift of the mask.
    """
    channels = target.target_channels(labels.channels)
    total = ClassCounts(np.zeros(channels), np.zeros(channels))
    margin = target.margin
    _, height, width = labels.extent
    for start, stop in statistics_slabs(labels):
        lower, upper = (start - margin, 0, 0), (stop + margin, height, width)
        values, weights = target.compute(*read_counted(target, labels, mask, lower, upper, shift))
        inner = slice(margin, margin + stop - start)
        total += count_patch(values[:, inner], weights[:, inner])
    return total


def rebalance(
    target: Float32, weight: Float32, counts: ClassCounts, *, exclusive: bool = False
) -> Float32:
    """Return weights (K, z, y, x) times the factors that give both classes half of the counted total.

    Where one class of a channel is absent from `counts`, the channel's weights stay as they are. `exclusive`: channels
    are classes (`Target.exclusive`): each that is there gets an equal part of the total, and voxels that have shares
    of several count by these.
    """
    if exclusive:
        there = counts.positive > 0
        even = counts.positive.sum() / max(1, np.count_nonzero(there))
        by_class = np.divide(even, counts.positive, out=np.ones_like(counts.positive), where=there)
        of_voxels = np.tensordot(by_class, target, axes=1)
        return (weight * of_voxels).astype(np.float32)
    both = (counts.positive > 0) & (counts.negative > 0)
    half = (counts.positive + counts.negative) / 2
    positive = np.divide(half, counts.positive, out=np.ones_like(half), where=both)
    negative = np.divide(half, counts.negative, out=np.ones_like(half), where=both)
    shape = (-1, 1, 1, 1)
    factor = np.where(target > 0.5, positive.reshape(shape), negative.reshape(shape))
    return (weight * factor).astype(np.float32)
