"""Tiles of one size, in which a volume is cut into fragments, each with what surrounds it.

The tiles lie on a grid that begins with the volume. So fragments do not depend on what is read, computed or written at
once, on memory or processes. A fragment whose seed is seen by several tiles is one and the same in all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.data.volume import Triple, Triple64
from znnpy.segment.faces import Faces, faces, seam
from znnpy.segment.fragments import Float32, Labels, is_flat, sown
from znnpy.segment.method import HALO, SURER, TILE, Method
from znnpy.segment.wanted import Wanted, boundaries

Read = Callable[[Triple, Triple], Float32]
"""Returns the probabilities (C, z, y, x) of a region, lower <= (z, y, x) < upper."""


@dataclass(frozen=True)
class Tiling:
    """The tiles of a volume of `extent`; `sections`: each section is cut by itself, `bins`: faces have histograms."""

    extent: Triple
    resolution: Triple64
    level: float
    bins: bool = False
    tile: Triple = TILE
    halo: int = HALO

    @property
    def places(self) -> list[Triple]:
        """The tiles, by their places on the grid, z slowest."""
        counts = [-(-n // size) for n, size in zip(self.extent, self.tile, strict=True)]
        return [(z, y, x) for z, y, x in itertools.product(*map(range, counts))]

    def region(self, place: Triple) -> tuple[Triple, Triple]:
        """Return the first voxel of a tile, and the one behind its last."""
        lower = [n * size for n, size in zip(place, self.tile, strict=True)]
        upper = [min(a + n, most) for a, n, most in zip(lower, self.tile, self.extent, strict=True)]
        return (lower[0], lower[1], lower[2]), (upper[0], upper[1], upper[2])

    def window(self, place: Triple) -> tuple[Triple, Triple]:
        """Return the region of a tile with its halo, within the volume."""
        lower, upper = self.region(place)
        halo = (0 if is_flat(self.resolution) else self.halo, self.halo, self.halo)
        below = [max(0, a - n) for a, n in zip(lower, halo, strict=True)]
        above = [min(most, b + n) for b, n, most in zip(upper, halo, self.extent, strict=True)]
        return (below[0], below[1], below[2]), (above[0], above[1], above[2])

    def meeting(self, lower: Triple, upper: Triple) -> list[Triple]:
        """Return the tiles that have voxels in a region."""
        axes = [
            range(a // size, -(-b // size))
            for a, b, size in zip(lower, upper, self.tile, strict=True)
        ]
        return [(z, y, x) for z, y, x in itertools.product(*axes)]

    def shared(
        self, place: Triple, lower: Triple, upper: Triple
    ) -> tuple[tuple[slice, slice, slice], tuple[slice, slice, slice]]:
        """Return the voxels of a region that lie in a tile, as slices of the region and of the tile."""
        begin, end = self.region(place)
        inner = [max(a, b) for a, b in zip(lower, begin, strict=True)]
        outer = [min(a, b) for a, b in zip(upper, end, strict=True)]
        here, there = (
            [(a - n, b - n) for a, b, n in zip(inner, outer, origin, strict=True)]
            for origin in (lower, begin)
        )
        return _slices(here), _slices(there)

    @property
    def most_voxels(self) -> int:
        """The voxels of the largest window."""
        return max(
            int(np.prod(np.subtract(upper, lower), dtype=np.int64))
            for lower, upper in map(self.window, self.places[: 1 << 12])
        )


@dataclass(frozen=True)
class Plane:
    """One face of a tile: its fragments, as the tile numbers them, and the boundary map there."""

    labels: NDArray[Any]
    height: Float32


@dataclass(frozen=True)
class Part:
    """What one tile brings to the graph of fragments.

    `ids` int64 (n,): the fragments, by the index in the volume of the first voxel of their seeds, in the order in
    which the tile numbers them from 1; `voxels` int64 (n,), those within the tile; `faces` within it; `first` and
    `last`: its planes at both ends of z, y and x; none where no faces lie between tiles.
    """

    ids: NDArray[np.int64]
    voxels: NDArray[np.int64]
    faces: Faces
    first: tuple[Plane, ...]
    last: tuple[Plane, ...]


def tiling_of(
    method: Method,
    extent: Triple,
    resolution: Triple64,
    level: float,
    tile: Triple | None = None,
    halo: int | None = None,
) -> Tiling:
    """Return the tiles of a volume for a method: its own, but for other sizes of `tile` and `halo` that are named."""
    z, y, x = (min(a, b) for a, b in zip(tile or method.tile, extent, strict=True))
    size = resolution if method.by_size else (1.0, 1.0, 1.0)
    wide = method.halo if halo is None or not method.halo else halo
    return Tiling(extent, size, level, method.histograms, (z, y, x), wide)


def _slices(bounds: list[tuple[int, int]]) -> tuple[slice, slice, slice]:
    z, y, x = (slice(a, b) for a, b in bounds)
    return z, y, x


def box(lower: Triple, upper: Triple) -> tuple[slice, slice, slice]:
    """Return the slices of a region."""
    z, y, x = (slice(a, b) for a, b in zip(lower, upper, strict=True))
    return z, y, x


def cut(
    tiling: Tiling, place: Triple, read: Read, wanted: Wanted, share: float = SURER
) -> tuple[Labels, Part]:
    """Return the fragments of a tile (z, y, x), numbered from 1 within it, and what it brings to the graph.

    Seeds lie where the boundary is below `share` of the level at which objects end.
    """
    lower, upper = tiling.window(place)
    height = boundaries(read(lower, upper), wanted.kind, wanted.offsets)
    labels, first = sown(height, share * tiling.level, tiling.resolution)
    ids = index_in(tiling.extent, lower, height.shape, first)
    begin, end = tiling.region(place)
    inner = tuple(slice(a - n, b - n) for a, b, n in zip(begin, end, lower, strict=True))
    return _part(labels[inner], height[inner], ids, bins=tiling.bins)


def between(before: Plane, after: Plane, *, bins: bool) -> Faces:
    """Return the faces between two tiles; their fragments are numbered for all of the volume."""
    return seam(before.labels, after.labels, before.height, after.height, bins=bins)


def plane_of(array: NDArray[Any], at: int, axis: int) -> NDArray[Any]:
    """Return a copy of the plane of an array (z, y, x) at a place along an axis."""
    return np.array(np.moveaxis(array, axis, 0)[at])


def index_in(
    extent: Triple, lower: Triple, shape: tuple[int, ...], first: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the index in a volume of `extent` of voxels of a window at `lower`, by their index in the window."""
    z, y, x = np.unravel_index(first, shape)
    found = ((z + lower[0]) * extent[1] + y + lower[1]) * extent[2] + x + lower[2]
    return np.asarray(found, np.int64)


def _part(
    labels: Labels, height: Float32, ids: NDArray[np.int64], *, bins: bool
) -> tuple[Labels, Part]:
    voxels = np.bincount(labels.reshape(-1), minlength=len(ids) + 1)
    there = voxels > 0
    there[0] = False
    numbers = np.where(there, np.cumsum(there), 0).astype(np.int32)
    own = numbers[labels]
    planes = [
        tuple(Plane(plane_of(own, at, axis), plane_of(height, at, axis)) for axis in range(3))
        for at in (0, -1)
    ]
    part = Part(
        ids[there[1:]],
        voxels[there],
        faces(own, height, bins=bins),
        first=planes[0],
        last=planes[1],
    )
    return own, part
