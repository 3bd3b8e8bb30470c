"""What lies between fragments: sums, numbers and histograms of the boundary over the faces of each two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
BINS = 64  # of a histogram, from 0 to 1: medians between two of them are interpolated


@dataclass(frozen=True)
class Faces:
    """What lies between fragments: `pairs` (N, 2) of their numbers, the lower first, each once, in order.

    `total`: sums of the boundary over the voxel faces of a pair, of which there are `size`; both float64 (N,).
    `counts`: a histogram of it for each pair, int32 (N, BINS), or None.
    """

    pairs: NDArray[np.int64]
    total: Float64
    size: Float64
    counts: NDArray[np.int32] | None = None

    @property
    def mean(self) -> Float64:
        """The mean boundary of each pair."""
        return self.total / self.size


def faces(labels: NDArray[Any], height: NDArray[np.float32], *, bins: bool = False) -> Faces:
    """Return the faces of fragments on a map of boundaries, both (z, y, x); label 0 is none.

    The boundary between two voxels is the higher one of both: walls may lie on either side. `bins`: with histograms.
    """
    found = []
    for axis in range(3):
        along, high = np.moveaxis(labels, axis, 0), np.moveaxis(height, axis, 0)
        found.append(_apart(along[:-1], along[1:], high[:-1], high[1:]))
    return _gathered(found, int(labels.max()) + 1, bins=bins)


def seam(
    before: NDArray[Any],
    after: NDArray[Any],
    height_before: NDArray[np.float32],
    height_after: NDArray[np.float32],
    *,
    bins: bool = False,
) -> Faces:
    """Return the faces between two planes of fragments that touch, of one shape."""
    count = max(int(before.max()), int(after.max())) + 1
    return _gathered([_apart(before, after, height_before, height_after)], count, bins=bins)


def summed(parts: Sequence[Faces], count: int) -> Faces:
    """Return the faces of parts of a volume as those of all of it; fragments are numbered below `count`.

    Sums are made in the order of the parts.
    """
    keys = np.concatenate([part.pairs[:, 0] * count + part.pairs[:, 1] for part in parts])
    key, place = np.unique(keys, return_inverse=True)
    total, size = (
        np.bincount(place, np.concatenate(values), len(key)).astype(np.float64)
        for values in ([part.total for part in parts], [part.size for part in parts])
    )
    counts = None
    given = [part.counts for part in parts if part.counts is not None]
    if given:
        order = np.argsort(place, kind="stable")
        starts = np.searchsorted(place[order], np.arange(len(key)))
        each = np.concatenate(given)[order]
        counts = np.add.reduceat(each, starts, axis=0, dtype=np.int32) if len(key) else each
    return Faces(np.stack(np.divmod(key, max(count, 1)), axis=1), total, size, counts)


def _apart(
    before: NDArray[Any],
    after: NDArray[Any],
    height_before: NDArray[np.float32],
    height_after: NDArray[np.float32],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Return both fragments of each face between two, and the boundary there."""
    apart = (before != after) & (before > 0) & (after > 0)
    one, other = before[apart].astype(np.int64), after[apart].astype(np.int64)
    boundary = np.maximum(height_before[apart], height_after[apart])
    return np.minimum(one, other), np.maximum(one, other), boundary


def _gathered(
    found: Sequence[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]],
    count: int,
    *,
    bins: bool,
) -> Faces:
    values = np.concatenate([boundary for _, _, boundary in found])
    keys = np.concatenate([low * count + high for low, high, _ in found])
    key, place = np.unique(keys, return_inverse=True)
    total = np.bincount(place, values, len(key)).astype(np.float64)
    size = np.bincount(place, None, len(key)).astype(np.float64)
    counts = None
    if bins:
        bin_of = np.clip((values * BINS).astype(np.int64), 0, BINS - 1)
        each = np.bincount(place * BINS + bin_of, minlength=len(key) * BINS)
        counts = each.reshape(len(key), BINS).astype(np.int32)
    return Faces(np.stack(np.divmod(key, count), axis=1), total, size, counts)
