"""Where the voxels of a warped patch are read, and what is read there: values by splines, or the nearest voxels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.data.splines import (
    coefficients_room,
    spline_coefficients,
    spline_values,
    values_room,
)
from znnpy_kernels.data.warping import nearest_room, nearest_voxels

from znnpy.data.sampling.position_index import minus
from znnpy.data.sampling.scratch import at, scratch
from znnpy.data.sampling.warps import VECTOR, Doubles, Places, Region, Warp
from znnpy.data.volume import Array, Triple

ROOM = 8  # voxels read beside: beyond, what a prefiltered spline has of the border is below 1e-4
Run = tuple[tuple[int, int], tuple[int, int]]


@dataclass(frozen=True)
class Placed:
    """Where voxels z, y, x are read: `places` told from the voxel `base`, of which `cut` are those asked for.

    `places`: float32 (3, section, row, column), or those along y and x, where section s of all is read s behind the
    first. Sections read alike are one: so many are before each of `ends`. `low`, `high`: the least and the largest
    along z, y and x. `extent`: how many sections, rows and columns there are; lines of `places` may be longer.
    """

    places: Places
    base: Triple
    low: Doubles
    high: Doubles
    ends: NDArray[np.int64]
    extent: Triple
    cut: Region

    @classmethod
    def of(cls, warp: Warp, lower: Triple, upper: Triple, runs: Sequence[Run]) -> Placed:
        """Return where a warp reads a region, of which all is asked for.

        `runs`: sections from one to before another, and how far along y and x beside their place these lie.
        """
        extent = minus(upper, lower)
        z, y, x = lower
        if warp.alike:
            begins = [(first, y + down, x + across) for (first, _), (down, across) in runs]
            ends = [last - z for (_, last), _ in runs]
        else:
            begins = [
                (section, y + down, x + across)
                for span, (down, across) in runs
                for section in range(*span)
            ]
            ends = list(range(1, extent[0] + 1))
        places, low, high = warp.places(np.array(begins, np.float64), *extent[1:], lower)
        if warp.flat:
            low[0], high[0] = z, upper[0] - 1
        return cls(places, lower, low, high, np.array(ends, np.int64), extent, ((0, 0, 0), extent))

    def inside(self, corner: Triple) -> Placed:
        """Return them in voxels of the volume that lies at `corner` of the scene."""
        if not any(corner):
            return self
        by = np.array(corner, np.float64)
        return replace(self, base=minus(self.base, corner), low=self.low - by, high=self.high - by)

    @property
    def shape(self) -> Triple:
        """How many sections, rows and columns are asked for."""
        return minus(self.cut[1], self.cut[0])

    def words(self, lower: Triple) -> tuple[int, ...]:
        """Return what kernels are told of places, and of voxels from `lower` on."""
        axes, sections, rows, line = self.places.shape
        (z, y, x), (bottom, height, width) = self.cut
        return (
            at(self.places), sections * rows * line, 3 - axes, line, rows, at(self.ends), *minus(self.base, lower),
            z, bottom, y, height - y, x, width - x,
        )  # fmt: skip


def region_of(low: Doubles, high: Doubles, room: Triple = (0, 0, 0)) -> Region:
    """Return the region lower <= (z, y, x) < upper that holds the voxels nearest to places, and `room` more.

    `low`, `high`: the least and the largest of the places along z, y and x. With room rows are longer still, so that
    they fill vectors: what remained of one would take as long as the row.
    """
    z, y, x = (floor(n + 0.5) - more for n, more in zip(low, room, strict=True))
    bottom, height, width = (floor(n + 0.5) + 1 + more for n, more in zip(high, room, strict=True))
    if any(room):
        width += -(width - x) % VECTOR
    return (z, y, x), (bottom, height, width)


def room_of(warp: Warp) -> Triple:
    """Return how many voxels z, y, x beside the nearest ones `interpolated` needs."""
    return (0 if warp.flat else ROOM, ROOM, ROOM)


def interpolated(values: NDArray[np.float32], lower: Triple, placed: Placed) -> NDArray[np.float32]:
    """Return values (C, z, y, x) at the places asked for, float32, by cubic splines; the first value is at `lower`.

    They are needed as far around the places as `room_of` says, and may be changed.
    """
    channels, depth, height, width = values.shape
    found = np.empty((channels, *placed.shape), np.float32)
    words = placed.words(lower)
    flat = len(placed.places) < 3
    room = scratch(max(coefficients_room(width), values_room(found.shape[3])))
    values = np.require(values, requirements=["C", "W"])
    for channel in range(channels):
        source = at(values) + channel * values.strides[0]
        spline_coefficients(source, depth, height, width, flat, room)
        target = at(found) + channel * found.strides[0]
        spline_values(target, source, height, width, *words, room)
    return found


def nearest(arrays: Sequence[Array], lower: Triple, placed: Placed) -> list[Array]:
    """Return arrays (C, z, y, x), the first voxels of which are `lower`, nearest to the places asked for."""
    words = placed.words(lower)
    room = scratch(nearest_room(placed.shape[2]))
    taken = []
    for array in map(np.ascontiguousarray, arrays):
        found = np.empty((len(array), *placed.shape), array.dtype)
        nearest_voxels(at(found), at(array), array.itemsize, *array.shape, *words, room)
        taken.append(found)
    return taken
