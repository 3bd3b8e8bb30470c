"""Where the voxels of a warped patch are read, and what is read there: values by splines, or the nearest voxels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import floor

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.data.splines import ROOM as BESIDE
from znnpy_kernels.data.splines import spline_coefficients, spline_values
from znnpy_kernels.data.warping import nearest_voxels

from znnpy.data.sampling.warps import Doubles, Region, Warp, at
from znnpy.data.volume import Array, Triple

VECTOR = 16  # float32, the most that a CPU has at once
ROOM = 8  # voxels read beside: beyond, what a prefiltered spline has of the border is below 1e-4


@dataclass(frozen=True)
class Placed:
    """Where voxels z, y, x are read: `places` in voxels of the scene, of which `cut` are those asked for.

    `places`: (3, z, y, x). With `ends`, sections read alike are one: so many are before each end, and each is read as
    many voxels behind the first as it lies. `low`, `high`: the least and the largest along z, y and x.
    """

    places: Doubles
    low: Doubles
    high: Doubles
    ends: tuple[int, ...] = ()
    cut: tuple[slice, ...] = (slice(None),) * 3

    @classmethod
    def of(cls, warp: Warp, runs: Sequence[tuple[Doubles, Doubles, Doubles]]) -> Placed:
        """Return where a warp reads some lattices, given by axis, that follow each other along z; all are asked for."""
        ends = tuple(accumulate(len(z) for z, _, _ in runs))
        rows, columns = len(runs[0][1]), len(runs[0][2])
        if not warp.alike:
            places = np.empty((3, ends[-1], rows, columns))
            for first, last, run in zip((0, *ends), ends, runs, strict=False):
                warp.write(places[:, first:last], *run)
            lines = places.reshape(3, -1)
            return cls(places, lines.min(axis=1), lines.max(axis=1))
        places = np.empty((3, len(runs), rows, columns))
        for number, (z, y, x) in enumerate(runs):
            warp.write(places[:, number : number + 1], z[:1], y, x)
        # What is not bent ends at its corners.
        corners = places[:, :, :: max(1, rows - 1), :: max(1, columns - 1)].reshape(3, -1)
        low, high = corners.min(axis=1), corners.max(axis=1)
        high[0] = runs[-1][0][-1]
        return cls(places, low, high, ends)

    def inside(self, corner: Triple) -> Placed:
        """Return them in voxels of the volume that lies at `corner` of the scene."""
        if not any(corner):
            return self
        by = np.array(corner, np.float64)
        moved = self.places - by.reshape(3, 1, 1, 1)
        return replace(self, places=moved, low=self.low - by, high=self.high - by)

    @property
    def extent(self) -> Triple:
        """How many sections, rows and columns there are."""
        depth, rows, columns = self.places.shape[1:]
        return (self.ends[-1] if self.ends else depth, rows, columns)

    @property
    def asked(self) -> tuple[Triple, Triple]:
        """The first section, row and column that are asked for, and those behind the last."""
        spans = [it.indices(n) for it, n in zip(self.cut, self.extent, strict=True)]
        (z, bottom, _), (y, height, _), (x, width, _) = spans
        return (z, y, x), (bottom, height, width)

    def runs(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield sections asked for: their number among `places`, the first read so, the first one, and those behind."""
        (first, _, _), (last, _, _) = self.asked
        begin = 0
        for number, end in enumerate(self.ends):
            if max(begin, first) < min(end, last):
                yield number, begin, max(begin, first), min(end, last)
            begin = end


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


def interpolated(
    values: NDArray[np.float32], lower: Triple, placed: Placed, flat: bool
) -> NDArray[np.float32]:
    """Return values (C, z, y, x) at the places asked for, float32, by cubic splines; the first value is at `lower`.

    They are needed as far around the places as `room_of` says, and may be changed. `flat`: as the warp is.
    """
    _, depth, height, width = values.shape
    (front, top, left), (bottom, last, right) = placed.asked
    found = np.empty((len(values), bottom - front, last - top, right - left), np.float32)
    sections, rows, columns = placed.places.shape[1:]
    plane = rows * columns
    room = np.empty(width + BESIDE, np.float32)
    z, y, x = lower
    # Sections of places, how far these are apart, how many, where in the target, and where coefficients begin.
    parts = [(front, plane, bottom - front, 0, z)]
    if placed.ends:
        parts = [(it, 0, b - a, a - front, z - (a - begin)) for it, begin, a, b in placed.runs()]
    for channel, target in zip(np.require(values, requirements=["C", "W"]), found, strict=True):
        spline_coefficients(at(channel), depth, height, width, flat, at(room))
        for number, apart, count, place, begin in parts:
            spline_values(
                at(channel), height, width, begin, y, x,
                at(placed.places) + 8 * (number * plane + top * columns + left), sections * plane, apart, columns,
                count, last - top, right - left, at(target) + target.strides[0] * place, flat,
            )  # fmt: skip
    return found


def nearest(arrays: Sequence[Array], lower: Triple, placed: Placed) -> list[Array]:
    """Return arrays (..., z, y, x), the first voxels of which are `lower`, nearest to the places asked for."""
    depth, height, width = arrays[0].shape[-3:]
    voxels = np.empty(placed.places.shape[1:], np.int64)
    nearest_voxels(at(voxels), at(placed.places), voxels.size, *lower, height, width)
    if not placed.ends:
        voxels = voxels[placed.cut]
        return [it.reshape(*it.shape[:-3], -1).take(voxels, axis=-1) for it in arrays]
    found: list[list[Array]] = [[] for _ in arrays]
    for number, begin, first, last in placed.runs():
        # Sections lie as they are: a place is a voxel of each.
        own = voxels[number, placed.cut[1], placed.cut[2]]
        z = int(own[0, 0]) // (height * width) - begin
        for parts, it in zip(found, arrays, strict=True):
            planes = it.reshape(*it.shape[:-3], depth, -1)[..., z + first : z + last, :]
            parts.append(planes.take(own % (height * width), axis=-1))
    return [it[0] if len(it) == 1 else np.concatenate(it, axis=-3) for it in found]
