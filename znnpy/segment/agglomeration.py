"""Joins fragments into objects, least boundary first, by its mean or median over all faces between two."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.data.joining import join

from znnpy.segment.faces import BINS, Faces


def joined(
    found: Faces, sizes: NDArray[np.int64], threshold: float, least: int = 0
) -> NDArray[np.int64]:
    """Return for each fragment, and 0, one that stands for its object; `sizes`: voxels of each, (fragments + 1,).

    The two with the least boundary between them become one, again and again, while it is below `threshold`, or one of
    them has fewer than `least` voxels. The boundary is the mean over all faces (average linkage), of faces with
    histograms the median. Of equal ones the pair that is first in `found`, whatever it has become.
    """
    count, regions = len(found.pairs), len(sizes)
    parents = np.arange(regions)
    pairs = found.pairs.astype(np.int64)
    statistics = [found.total.astype(np.float64), found.size.astype(np.float64)]
    bins = 0 if found.counts is None else BINS
    histograms = np.zeros(1, np.int32) if found.counts is None else found.counts.astype(np.int32)
    voxels = sizes.astype(np.int64)
    room = [np.empty(regions, np.int64) for _ in range(2)]
    links = np.empty(4 * count, np.int64)
    queue = [np.empty(count, kind) for kind in (np.int64, np.int64, np.float64)]
    slots = 1 << max(1, 2 * count).bit_length()
    table = np.zeros(1 + slots, np.int64)
    table[0] = slots
    arrays: list[Any] = [np.ascontiguousarray(it) for it in (pairs, *statistics, histograms)]
    behind = [voxels, parents, *room, links, *queue, table]
    join(
        regions,
        count,
        *(it.ctypes.data for it in arrays),
        bins,
        *(it.ctypes.data for it in behind),
        least,
        threshold,
    )
    return _roots(parents)


def _roots(into: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each fragment ends by going on to what it became part of."""
    while (further := into[into] != into).any():
        into = np.where(further, into[into], into)
    return into
