"""Spectra with lanes over tiles and images, and back, against NumPy in float64."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from direct_cases import GUARD, Tensor, Triple, random_values
from tile_cases import near, words
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.spectral.packed_tiles import packed_floats, packed_images, packed_spectra

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
]


def origins(case: Case) -> list[tuple[Triple, Triple]]:
    """Lattice and first voxel in it of each tile of the row."""
    found = []
    for grid in case.tiling.grids:
        for place in product(*map(range, grid.counts)):
            at = tuple(p * s for p, s in zip(place, case.tiling.step, strict=True))
            found.append((grid.lattice, at))
    return found[case.first : case.first + case.tiles]


def box(case: Case, lattice: Triple, origin: Triple, count: Triple, shape: Triple):
    """Slices of the images that a tile's first `count` points lie on."""
    found = []
    for axis in range(3):
        step = case.tiling.dilation[axis]
        start = lattice[axis] + origin[axis] * step
        found.append(slice(start, min(shape[axis], start + count[axis] * step), step))
    return (slice(None), *found)


class Row:
    """Spectra of a row, scratch, and the words of both."""

    def __init__(self, case: Case, fill: float) -> None:
        size = case.tiling.tile
        self.case, self.half = case, (*size[:2], size[2] // 2 + 1)
        self.vectors = -(-case.images * case.tiles // LANES)
        self.parts = (self.vectors + 1) * LANES
        self.memory = np.full((int(np.prod(self.half)), 2, self.parts), fill, np.float32)
        self.scratch = np.full(packed_floats(size) + 16, np.nan, np.float32)

    def words(self, tensor: Tensor, count: Triple) -> dict[str, int]:
        case, start = self.case, -self.scratch.ctypes.data % 64 // 4
        return {
            "images": case.images,
            **words("extent", case.tiling.extents),
            **words("dilation", case.tiling.dilation),
            **words("step", case.tiling.step),
            **words("count", count),
            **words("shape", case.shape),
            **words("size", case.tiling.tile),
            "first": case.first,
            "tiles": case.tiles,
            "image": tensor.address,
            "image_batch": 0,
            "image_block": tensor.block,
            "image_z": tensor.z,
            "image_y": tensor.y,
            "image_x": tensor.x,
            "spectra": self.memory.ctypes.data,
            "spectra_frequency": 2 * self.parts,
            "spectra_parts": self.parts,
            "scratch": self.scratch.ctypes.data + 4 * start,
            "scratch_worker": 0,
        }

    def tasks(self) -> tuple[dict[str, int], ...]:
        cut = self.vectors // 2
        return tuple(
            {"vector0": low, "vector1": high} for low, high in ((0, cut), (cut, self.vectors))
        )

    @property
    def used(self) -> int:
        return self.case.images * self.case.tiles


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("whole", [True, False])
def test_spectra(case: Case, whole: bool) -> None:
    count = case.tiling.tile if whole else case.tiling.step
    values = random_values(np.random.default_rng(0), case.images, *case.shape)
    tensor, row = Tensor(case.images, case.shape, LANES, np.nan), Row(case, GUARD)
    tensor.write(values)
    for task in row.tasks():
        packed_spectra.run(**row.words(tensor, count), **task)
    tiles = np.zeros((case.tiles, case.images, *case.tiling.tile))
    for tile, (lattice, origin) in zip(tiles, origins(case), strict=True):
        part = values[box(case, lattice, origin, count, case.shape)]
        tile[(slice(None), *map(slice, part.shape[1:]))] = part
    expected = np.fft.rfftn(tiles, axes=(2, 3, 4)).reshape(row.used, -1).T
    near(row.memory[:, 0, : row.used] + 1j * row.memory[:, 1, : row.used], expected)
    assert (row.memory[:, :, row.vectors * LANES :] == GUARD).all()


def expected_images(case: Case, tiles, before, bias) -> tuple[np.ndarray, np.ndarray]:
    """Images with half of what tiles bring, and where; without a bias tiles overlap, else relu follows."""
    count = case.tiling.tile if bias is None else case.tiling.step
    expected, written = before.astype(np.float64), np.zeros(case.shape, bool)
    for number, (lattice, origin) in enumerate(origins(case)):
        here = box(case, lattice, origin, count, case.shape)
        shape = expected[here].shape[1:]
        new = 0.5 * tiles[(number, slice(None), *map(slice, shape))]
        if bias is None:
            old = np.array([o > 0 for o in origin])
            first = np.ones(shape, bool)
            for axis in np.flatnonzero(old):
                done = case.tiling.tile[axis] - case.tiling.step[axis]
                first[(*[slice(None)] * axis, slice(done))] = False
            new = new + np.where(first, 0.0, expected[here])
        else:
            new = np.maximum(new + bias[:, None, None, None], 0.0)
        expected[here], written[here[1:]] = new, True
    return expected, written


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("overlap", [True, False])
def test_images(case: Case, overlap: bool) -> None:
    count = case.tiling.tile if overlap else case.tiling.step
    rng, row = np.random.default_rng(1), Row(case, np.nan)
    tiles = rng.standard_normal((case.tiles, case.images, *case.tiling.tile))
    spectra = np.fft.rfftn(tiles, axes=(2, 3, 4)).reshape(row.used, -1).T
    row.memory[:, 0, : row.used], row.memory[:, 1, : row.used] = spectra.real, spectra.imag
    before = random_values(rng, case.images, *case.shape)
    target = Tensor(case.images, case.shape, LANES, GUARD)
    target.write(before)
    pads = target.whole()[-1, (case.images - 1) % LANES + 1 :]
    pads[...] = GUARD
    bias = random_values(rng, case.images)
    given = {
        "scale": 0.5 / np.prod(case.tiling.tile),
        "bias": 0 if overlap else bias.ctypes.data,
        "relu": int(not overlap),
    }
    for task in row.tasks():
        packed_images.run(**row.words(target, count), **task, **given)
    expected, written = expected_images(case, tiles, before, None if overlap else bias)
    assert not pads[:, written].any(), "lanes beyond the last image must be 0"
    pads[...] = 0
    near(target.read(), expected)
    target.check_guards()
