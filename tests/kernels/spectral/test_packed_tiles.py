"""Spectra with lanes over tiles and images, and back, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest
from direct_cases import GUARD, Tensor, Triple, random_values
from packed_cases import CASES, Case, box, expected_images, inside_words, origins, place_words
from tile_cases import near
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.spectral.packed_tiles import packed_floats, packed_images, packed_spectra


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
        case, start = self.case, -address(self.scratch) % 64 // 4
        return {
            **place_words(case, tensor, count),
            "spectra": self.memory,
            "spectra_frequency": 2 * self.parts,
            "spectra_parts": self.parts,
            "scratch": address(self.scratch) + 4 * start,
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
    count = case.tiling.tile if whole else case.tiling.new
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


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("overlap", [True, False])
def test_images(case: Case, overlap: bool) -> None:
    count = case.tiling.tile if overlap else case.tiling.new
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
        "bias": 0 if overlap else bias,
        "relu": int(not overlap),
    }
    for task in row.tasks():
        packed_images.run(**row.words(target, count), **task, **given)
    expected, written = expected_images(case, tiles, before, None if overlap else bias)
    assert not pads[:, written].any(), "lanes beyond the last image must be 0"
    pads[...] = 0
    near(target.read(), expected)
    target.check_guards()


@pytest.mark.parametrize("case", CASES)
def test_images_of_some_tiles_after_others(case: Case) -> None:
    """A vector that holds tiles of both parts is transformed for each of them."""
    row, found = Row(case, np.nan), []
    shape = row.memory[:, :, : row.used].shape
    row.memory[:, :, : row.used] = np.random.default_rng(1).standard_normal(shape)
    given = {"scale": 1.0, "bias": 0, "relu": 0}
    for cut in (0, case.tiles // 2, case.tiles // 3):
        target = Tensor(case.images, case.shape, LANES, GUARD)
        for low, high in ((0, cut), (cut, case.tiles)):
            vectors = low * case.images // LANES, -(-high * case.images // LANES)
            part = {"tile0": low, "tiles": high, "vector0": vectors[0], "vector1": vectors[1]}
            words = row.words(target, case.tiling.tile) | part
            packed_images.run(**words, **given)
        found.append(target.whole().copy())
        target.check_guards()
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("padding", [(1, 2, 3), (0, 5, 1)])
def test_images_that_begin_behind_the_first_tiles(case: Case, padding: Triple) -> None:
    count, (z, y, x) = case.tiling.tile, map(min, padding, (n - 1 for n in case.shape))
    rng, row = np.random.default_rng(1), Row(case, np.nan)
    tiles = rng.standard_normal((case.tiles, case.images, *case.tiling.tile))
    spectra = np.fft.rfftn(tiles, axes=(2, 3, 4)).reshape(row.used, -1).T
    row.memory[:, 0, : row.used], row.memory[:, 1, : row.used] = spectra.real, spectra.imag
    smaller = case.shape[0] - z, max(1, case.shape[1] - y - 1), case.shape[2] - x
    target = Tensor(case.images, smaller, LANES, GUARD)
    target.write(np.zeros((case.images, *smaller), np.float32))
    given = {"scale": 0.5 / np.prod(case.tiling.tile), "bias": 0, "relu": 0}
    words = row.words(target, count) | inside_words(target, (z, y, x), smaller)
    for task in row.tasks():
        packed_images.run(**words, **task, **given)
    whole, _ = expected_images(case, tiles, np.zeros((case.images, *case.shape)), None)
    inside = (slice(n, n + size) for n, size in zip((z, y, x), smaller, strict=True))
    near(target.read(), whole[(slice(None), *inside)])
    target.check_guards()
