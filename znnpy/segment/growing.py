"""A seeded watershed tile by tile: each tile is flooded, with what surrounds it, from the seeds of the whole volume."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from znnpy.data.volume import Triple
from znnpy.segment.fragments import Labels, flooded
from znnpy.segment.tiles import Read, Tiling
from znnpy.segment.wanted import Float32, Wanted, boundaries

SURE = 0.5  # of a boundary map, 1 - probability: above it nothing is foreground
Seeds = Callable[[Triple, Triple], tuple[Labels, NDArray[np.uint64]]]
"""Returns labels int32 of a region, and the number of the object of each, after 0 for none."""


def grown(
    tiling: Tiling, place: Triple, read: Read, seeds: Seeds, wanted: Wanted
) -> tuple[Labels, NDArray[np.uint64]]:
    """Return the labels of a tile (z, y, x), and the number of the object of each, after 0 for none.

    A seed is the same object in all tiles that see it, so where two tiles meet nothing has to be joined.
    """
    lower, upper = tiling.window(place)
    labels, numbers = seeds(lower, upper)
    if labels.any():
        height = boundaries(read(lower, upper), wanted.kind, wanted.offsets)
        labels = flooded(height, labels, inside(height, wanted))
    begin, end = tiling.region(place)
    inner = tuple(slice(a - n, b - n) for a, b, n in zip(begin, end, lower, strict=True))
    own = labels[inner]
    there = np.bincount(own.reshape(-1), minlength=len(numbers)) > 0
    there[0] = True
    return (np.cumsum(there) - 1).astype(np.int32)[own], numbers[there]


def inside(height: Float32, wanted: Wanted) -> NDArray[np.bool_] | None:
    """Return where is flooded: a foreground only where it is above 0.5 (or the threshold, if lower), None: all."""
    if wanted.kind != "foreground":
        return None
    return np.asarray(height < max(SURE, wanted.level))
