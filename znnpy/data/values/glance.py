"""What a volume holds, found by reading a bounded part of it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from znnpy.data.volume import Triple, Volume

WHOLE = 1 << 25  # bytes up to which a volume is read whole
BOXES = 8  # places that are read of a larger one, along its diagonal
LONGEST = 256  # voxels of such a place along y and x, and SHALLOWEST or a chunk along z
SHALLOWEST = 8


@dataclass(frozen=True)
class Glance:
    """The least and greatest value among `voxels` of a volume (of each channel), all or some."""

    lowest: float
    highest: float
    voxels: int
    whole: bool


def glance(volume: Volume, *, finite: bool = True) -> Glance:
    """Look at a volume's values: at all if it is small, else at BOXES places evenly spaced.

    Errors as in `Volume.read`; without `finite`, values that are not finite are passed over.
    """
    whole = volume.nbytes <= WHOLE
    places = [((0, 0, 0), volume.extent)] if whole else _places(volume)
    low, high, voxels = [], [], 0
    for lower, upper in places:
        values = volume.read(lower, upper, finite=finite)
        voxels += prod(values.shape[1:])
        seen = values[np.isfinite(values)]
        low += [seen.min()] if seen.size else []
        high += [seen.max()] if seen.size else []
    if not low:
        return Glance(np.nan, np.nan, voxels, whole)
    return Glance(np.min(low).item(), np.max(high).item(), voxels, whole)


def _places(volume: Volume) -> list[tuple[Triple, Triple]]:
    depth = max(SHALLOWEST, min(volume.chunk[0], LONGEST))
    z, y, x = map(min, (depth, LONGEST, LONGEST), volume.extent)
    found = []
    for part in range(BOXES):
        corner = [
            (whole - size) * part // (BOXES - 1)
            for whole, size in zip(volume.extent, (z, y, x), strict=True)
        ]
        first = (corner[0], corner[1], corner[2])
        found.append((first, (first[0] + z, first[1] + y, first[2] + x)))
    return found
