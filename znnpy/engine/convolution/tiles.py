"""Tiles of a spectral convolution: their numbers, the planes that they touch, and where their spectra lie in memory.

Tiles of all lattices and samples are numbered through: [batch][lattice z y x][tile], those of a lattice in turns
(`znnpy_kernels.spectral.turns`). A lattice is the voxels a dilated filter connects. Tiles are taken in groups, whose
spectra lie together: [frequency][tile][block][re, im][lane].
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from itertools import pairwise, product
from math import gcd, prod

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.spectral.turns import place_of

from znnpy.engine.memory.regions import Buffer
from znnpy.engine.memory.tensors import Tensor
from znnpy.network.types import Triple
from znnpy.plan.tiles import frequencies, lattices

PAIR = 2 * LANES  # floats of a complex vector
# Bands along an axis of a lattice, whose overlapping tiles are ordered apart. A band for each tile tells all tiles of a
# turn apart, but then tasks have as many strands to declare: few workers have large tasks, and wait for few of them.
FEWEST_BANDS, BANDS_EACH, MOST_BANDS = 4, 2, 16


def bands_for(workers: int) -> int:
    """Return how many bands an axis has at most for so many workers."""
    return min(MOST_BANDS, max(FEWEST_BANDS, BANDS_EACH * workers))


@dataclass(frozen=True)
class Grid:
    """The tiles of one lattice of one image of the batch; `first` is the number of the first."""

    batch: int
    lattice: Triple  # its first voxel
    counts: Triple  # tiles along z, y, x
    first: int

    @property
    def tiles(self) -> int:
        """Tiles of this lattice."""
        return prod(self.counts)


@dataclass(frozen=True)
class Stretch:
    """Tiles low..high of a grid, within a group of tiles that starts at number `start`; `part`: of their channels."""

    grid: Grid
    low: int
    high: int
    group: int
    start: int
    part: range | None = None

    @property
    def tiles(self) -> range:
        """The tiles by their numbers in the group."""
        first = self.grid.first - self.start
        return range(first + self.low, first + self.high)


@dataclass(frozen=True)
class Tiling:
    """Tiles of `tile` points whose `new` points cover images of `extents` voxels."""

    tile: Triple
    new: Triple
    dilation: Triple
    extents: Triple
    batch: int

    @property
    def overlap(self) -> Triple:
        """Points along z, y, x that are not new."""
        z, y, x = (size - new for size, new in zip(self.tile, self.new, strict=True))
        return z, y, x

    @property
    def turns(self) -> int:
        """Turns of a grid: tiles of one never overlap."""
        return prod(-(-size // new) for size, new in zip(self.tile, self.new, strict=True))

    @property
    def frequencies(self) -> int:
        """Complex numbers of a spectrum."""
        return frequencies(self.tile)

    @cached_property
    def grids(self) -> tuple[Grid, ...]:
        """Those of all images and lattices, in the order of their numbers."""
        axes = [
            [(first, -(-points // new)) for first, points in enumerate(lattices(extent, dilation))]
            for extent, dilation, new in zip(self.extents, self.dilation, self.new, strict=True)
        ]
        grids: list[Grid] = []
        # Numbers go through all samples and lattices, so that products see one long row of tiles.
        number = 0
        for batch, (z, y, x) in product(range(self.batch), product(*axes)):
            grids.append(Grid(batch, (z[0], y[0], x[0]), (z[1], y[1], x[1]), number))
            number += grids[-1].tiles
        return tuple(grids)

    @cached_property
    def tiles(self) -> int:
        """Number of all tiles."""
        return self.grids[-1].first + self.grids[-1].tiles

    def in_lattices(self, most: int) -> int:
        """Return a group size of at most `most`: whole lattices or equal parts of one, unless far fewer than `most`."""
        # Only lattices with equally many tiles can be taken in whole numbers.
        count, *others = (grid.tiles for grid in self.grids)
        if not others or set(others) != {count}:
            return most
        if most >= count:
            return most - most % count
        cuts = next(cuts for cuts in range(-(-count // most), count + 1) if count % cuts == 0)
        # Far fewer tiles in a group than asked for would read filters too often.
        return count // cuts if 2 * count > cuts * most else most

    def stretches(self, low: int, high: int, group: int, start: int) -> list[Stretch]:
        """Return every grid's part of the tiles low..high, which belong to a group that begins at `start`."""
        return [
            Stretch(
                grid,
                max(low, grid.first) - grid.first,
                min(high, grid.first + grid.tiles) - grid.first,
                group,
                start,
            )
            for grid in self.grids
            if grid.first < high and low < grid.first + grid.tiles
        ]

    def lattice_shape(self, shape: Triple, lattice: Triple) -> Triple:
        """Return the points of a lattice in images of a shape."""
        z, y, x = (
            -(-(size - first) // apart)
            for size, first, apart in zip(shape, lattice, self.dilation, strict=True)
        )
        return z, y, x


class TileSpectra:
    """Spectra of all tiles of some images, in groups of `most` tiles; `places` by group.

    Each image has a lane of its own in every tile, or, `packed`, lanes go over a group's tiles and images.
    """

    def __init__(self, tiling: Tiling, channels: int, most: int, *, packed: bool = False) -> None:
        self.tiling, self.channels, self.most, self.packed = tiling, channels, most, packed
        self.blocks = -(-channels // LANES)
        floats = most * channels if packed else most * self.blocks * LANES
        # An odd number of pairs of lines, so that frequencies do not fall on one set of the caches.
        vectors = -(-floats // LANES) | 1
        self.tile_stride = channels if packed else self.blocks * PAIR
        self.block_stride = LANES if packed else PAIR
        # Packed: all real parts of a frequency, then all imaginary ones. Otherwise both parts of a
        # block side by side.
        self.imaginary = vectors * LANES if packed else LANES
        self.frequency_stride = vectors * PAIR
        self.floats = self.frequency_stride * tiling.frequencies
        self.groups = -(-tiling.tiles // most)
        self.places: dict[int, Buffer] = {}

    @property
    def last_lanes(self) -> int:
        """Lanes of a tile's last block that belong to it."""
        return (self.channels - 1) % LANES + 1 if self.packed else LANES

    @property
    def parts(self) -> int:
        """Parts of a tile's channels, of which a vector holds some: one where each image has lanes of its own."""
        return self.channels // gcd(self.channels, LANES) if self.packed else 1

    def vectors(self, group: int) -> int:
        """Return the vectors of a group of packed tiles, or the blocks of all its tiles."""
        if self.packed:
            return -(-self.count(group) * self.channels // LANES)
        return self.count(group) * self.blocks

    def count(self, group: int) -> int:
        """Return the number of tiles of a group: `most` but for the last."""
        return min(self.most, self.tiling.tiles - group * self.most)

    def at(self, group: int, tile: int = 0, block: int = 0, frequency: int = 0) -> int:
        """Return the address of a complex vector."""
        floats = frequency * self.frequency_stride + tile * self.tile_stride
        return self.places[group].address + 4 * (floats + block * self.block_stride)

    def stretches(self, group: int) -> list[Stretch]:
        """Return every grid's tiles of a group."""
        start = group * self.most
        return self.tiling.stretches(start, start + self.count(group), group, start)


class PlaneSpectra(TileSpectra):
    """Packed tiles transformed along their planes alone: [vector][z][y][kx][re, im][lane].

    A column is one frequency of the planes along the axis that is left, of `points` points.
    """

    def __init__(self, tiling: Tiling, channels: int, most: int) -> None:
        super().__init__(tiling, channels, most, packed=True)
        z, y, x = tiling.tile
        row = (x // 2 + 1) * PAIR
        # A pair of lines more than a plane takes: planes shall not fall on one set of the caches.
        self.vector_stride = z * (y * row + PAIR)
        # Tiles of one plane have their columns along y.
        self.axis, self.point_stride = (1, row) if z == 1 else (0, y * row + PAIR)
        self.points = tiling.tile[self.axis]
        self.columns = row // PAIR * (1 if z == 1 else y)
        self.floats = self.vectors(0) * self.vector_stride


@dataclass(frozen=True)
class Window:
    """Which points of a lattice a tile touches: `count` from origin + tile number * new points on."""

    origin: Triple
    count: Triple


def planes_of(
    tensor: Tensor, tiling: Tiling, stretch: Stretch, window: Window
) -> tuple[int, int] | None:
    """Return the planes along the tensor's cut axis that some tiles touch; None where all lies outside."""
    axis = tensor.cut
    places = _places(tiling, stretch.grid.counts)[stretch.low : stretch.high, axis]
    first, last = int(places.min()), int(places.max())
    # From points of a lattice to voxels: every `apart`-th from `start` on.
    start, apart = stretch.grid.lattice[axis], tiling.dilation[axis]
    limit = tiling.lattice_shape(tensor.shape, stretch.grid.lattice)[axis]
    low = max(0, window.origin[axis] + first * tiling.new[axis])
    high = min(limit, window.origin[axis] + last * tiling.new[axis] + window.count[axis])
    return (start + low * apart, start + (high - 1) * apart + 1) if low < high else None


# All blocks of a task ask for the same ones.
@lru_cache(maxsize=64)
def squares_of(tiling: Tiling, stretch: Stretch, most: int = MOST_BANDS) -> tuple[int, ...]:
    """Return strands for the squares of a lattice, of `most` bands along y and x, that overlapping tiles touch.

    Tiles without a square in common have no point in common, in whatever planes they lie.
    """
    counts = stretch.grid.counts
    along_y, along_x = _bands(tiling, 1, counts[1], most), _bands(tiling, 2, counts[2], most)
    places = _places(tiling, counts)[stretch.low : stretch.high, 1:]
    found = {
        square
        for y, x in {(y, x) for y, x in places.tolist()}
        for square in product(along_y[y], along_x[x])
    }
    # Lattices never share a voxel: each has numbers of its own, no more than it has tiles.
    return tuple(stretch.grid.first + y * counts[2] + x for y, x in sorted(found))


def in_turns(tiling: Tiling, stretch: Stretch) -> list[Stretch]:
    """Return the parts of a stretch, plane by plane and turn by turn: tiles of one never overlap."""
    starts = _turn_starts(tiling, stretch.grid.counts)
    cuts = [
        stretch.low,
        *(start for start in starts if stretch.low < start < stretch.high),
        stretch.high,
    ]
    return [replace(stretch, low=low, high=high) for low, high in pairwise(cuts)]


@cache
def _turn_starts(tiling: Tiling, counts: Triple) -> list[int]:
    """Return the numbers of tiles of a grid with which a plane or a turn begins."""
    y, x = (-(-tiling.tile[axis] // tiling.new[axis]) for axis in (1, 2))
    turns = _places(tiling, counts) % (counts[0], y, x)
    return [0, *(np.flatnonzero(np.any(turns[1:] != turns[:-1], axis=1)) + 1).tolist()]


@cache
def _places(tiling: Tiling, counts: Triple) -> NDArray[np.int64]:
    """Return the places of all tiles of a grid, (tiles, 3)."""
    places = [
        place_of(number, counts, tiling.tile, tiling.new)[1] for number in range(prod(counts))
    ]
    return np.array(places, np.int64)


@cache
def _bands(tiling: Tiling, axis: int, tiles: int, most: int) -> list[range]:
    """Return the bands of new points that each tile along an axis touches."""
    new, size = tiling.new[axis], tiling.tile[axis]
    band = -(-tiles // most)  # in tiles
    last = (tiles - 1) // band
    return [
        # Behind the last tile's new points there is no other tile.
        range(place // band, min(last, (place * new + size - 1) // (new * band)) + 1)
        for place in range(tiles)
    ]
