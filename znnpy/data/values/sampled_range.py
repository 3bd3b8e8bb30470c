"""The range of a volume's values, from a bounded part of it."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan, prod

import numpy as np

from znnpy.data.volume import Triple, Volume

WHOLE = 1 << 25  # bytes up to which a volume is read whole
BOXES = 8  # places that are read of a larger one, along its diagonal
LONGEST = 256  # voxels of such a place along y and x, and SHALLOWEST or a chunk along z
SHALLOWEST = 8


@dataclass(frozen=True)
class Glance:
    """Least and greatest value of each channel among `voxels` of a volume, all or some; NaN if none is finite."""

    ranges: tuple[tuple[float, float], ...]
    voxels: int
    whole: bool

    @property
    def lowest(self) -> float:
        """The least value of all channels."""
        return min((low for low, _ in self.ranges if low == low), default=nan)

    @property
    def highest(self) -> float:
        """The greatest value of all channels."""
        return max((high for _, high in self.ranges if high == high), default=nan)


def glance(volume: Volume, *, finite: bool = True) -> Glance:
    """Return the range of a volume's values: of all if it is small, else at BOXES places evenly spaced.

    Errors as in `Volume.read`; without `finite`, values that are not finite are skipped.
    """
    ends: list[list[float]] = [[] for _ in range(volume.channels)]
    voxels = 0
    for lower, upper in looked_at(volume):
        values = volume.read(lower, upper, finite=finite)
        voxels += prod(values.shape[1:])
        for found, channel in zip(ends, values, strict=True):
            seen = channel[np.isfinite(channel)]
            found += [seen.min().item(), seen.max().item()] if seen.size else []
    ranges = tuple((min(found, default=nan), max(found, default=nan)) for found in ends)
    return Glance(ranges, voxels, is_small(volume))


def is_small(volume: Volume) -> bool:
    """Return whether a volume is read whole."""
    return volume.nbytes <= WHOLE


def looked_at(volume: Volume) -> list[tuple[Triple, Triple]]:
    """Return first voxel and end of each place that is read of a volume: all of it if it is small."""
    if is_small(volume):
        return [((0, 0, 0), volume.extent)]
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
