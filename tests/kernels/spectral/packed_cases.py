"""Rows of tiles whose spectra have lanes over tiles and images: cases, and what NumPy makes of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from direct_cases import Tensor, Triple
from tile_cases import by_turns, words
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.convolution.tiles import Tiling


class Case(NamedTuple):
    """Images, their shape, and a row of `tiles` from `first` on of all tiles of `tiling`."""

    images: int
    shape: Triple
    tiling: Tiling
    first: int
    tiles: int


CASES = [
    Case(10, (14, 13, 19), Tiling((8, 8, 8), (6, 6, 6), (1, 1, 1), (12, 11, 17), 1), 0, 12),
    Case(10, (13, 12, 11), Tiling((8, 8, 8), (6, 6, 6), (2, 1, 2), (9, 10, 7), 1), 1, 7),
    Case(5, (1, 23, 22), Tiling((1, 8, 10), (1, 6, 8), (1, 4, 3), (1, 17, 16), 1), 2, 9),
    Case(LANES + 4, (9, 8, 9), Tiling((6, 8, 6), (4, 8, 4), (1, 1, 1), (7, 8, 7), 1), 0, 4),
    Case(1, (6, 6, 26), Tiling((6, 6, 6), (4, 4, 4), (1, 1, 1), (4, 4, 24), 1), 0, 6),
    # A vector with tiles of two turns along z.
    Case(1, (22, 6, 7), Tiling((6, 6, 6), (4, 4, 4), (1, 1, 1), (20, 4, 4), 1), 0, 5),
    # Overlaps wider than new points: four turns.
    Case(3, (16, 10, 12), Tiling((8, 8, 8), (2, 2, 2), (1, 1, 1), (10, 4, 6), 1), 0, 30),
]


def origins(case: Case) -> list[tuple[Triple, Triple]]:
    """Lattice and first voxel in it of each tile of the row."""
    return _all_origins(case)[case.first : case.first + case.tiles]


def _all_origins(case: Case) -> list[tuple[Triple, Triple]]:
    found = []
    for grid in case.tiling.grids:
        for place in by_turns(grid.counts, case.tiling.tile, case.tiling.new):
            at = tuple(p * s for p, s in zip(place, case.tiling.new, strict=True))
            found.append((grid.lattice, at))
    return found


def earliest(case: Case, count: Triple) -> np.ndarray:
    """The least number of a tile, of the row or not, that touches each voxel."""
    found = np.full((1, *case.shape), np.iinfo(int).max)
    for number, (lattice, origin) in enumerate(_all_origins(case)):
        here = box(case, lattice, origin, count, case.shape)
        found[here] = np.minimum(found[here], number)
    return found


def box(case: Case, lattice: Triple, origin: Triple, count: Triple, shape: Triple):
    """Slices of the images that a tile's first `count` points lie on."""
    found = []
    for axis in range(3):
        step = case.tiling.dilation[axis]
        start = lattice[axis] + origin[axis] * step
        found.append(slice(start, min(shape[axis], start + count[axis] * step), step))
    return (slice(None), *found)


def place_words(case: Case, tensor: Tensor, count: Triple) -> dict[str, int]:
    """Words that tell of which tiles and images the vectors of a row are made."""
    return {
        "images": case.images,
        **words("extent", case.tiling.extents),
        **words("dilation", case.tiling.dilation),
        **words("step", case.tiling.new),
        **words("count", count),
        **words("shape", case.shape),
        **words("size", case.tiling.tile),
        **words("before", (0, 0, 0)),
        "first": case.first,
        "tile0": 0,
        "tiles": case.tiles,
        "image": tensor.address,
        "image_batch": 0,
        "image_block": tensor.block,
        "image_z": tensor.z,
        "image_y": tensor.y,
        "image_x": tensor.x,
    }


def expected_images(case: Case, tiles, before, bias) -> tuple[np.ndarray, np.ndarray]:
    """Images with half of what tiles bring, and where; without a bias tiles overlap, else relu follows."""
    count = case.tiling.tile if bias is None else case.tiling.new
    expected, written = before.astype(np.float64), np.zeros(case.shape, bool)
    first = earliest(case, count)
    for number, (lattice, origin) in enumerate(origins(case)):
        here = box(case, lattice, origin, count, case.shape)
        shape = expected[here].shape[1:]
        new = 0.5 * tiles[(number, slice(None), *map(slice, shape))]
        if bias is None:
            new = new + np.where(first[here] == case.first + number, 0.0, expected[here])
        else:
            new = np.maximum(new + bias[:, None, None, None], 0.0)
        expected[here], written[here[1:]] = new, True
    return expected, written


def inside_words(tensor: Tensor, before: Triple, shape: Triple) -> dict[str, int]:
    """Words of tiles that begin before images of this shape."""
    return {**words("before", before), **words("shape", shape), "image": tensor.address}
