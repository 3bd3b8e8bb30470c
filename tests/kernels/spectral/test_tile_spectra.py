"""Tiles of images to spectra and back against NumPy in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from direct_cases import Triple
from tile_cases import Tiling, check_images, check_spectra
from znnpy_kernels.fft.codelets import SIZES
from znnpy_kernels.simd.lanes import LANES

SHAPES = [
    *((n, n, n) for n in (6, 7, 8, 10, 11, 12, 14, 15, 16, 17, 18, 20)),
    *((1, n, n) for n in SIZES),
    (8, 24, 32),
    (32, 8, 24),
    (24, 32, 8),
    (28, 6, 30),
    (30, 28, 6),
    (12, 1, 20),
    (16, 16, 1),
]


def covering(size: Triple, taps: Triple = (1, 3, 3), tiles: Triple = (1, 2, 2)) -> Tiling:
    """Overlapping tiles from before the image on."""
    step = tuple(max(1, n - k + 1) for n, k in zip(size, taps, strict=True))
    origin = tuple(-(n // 5) for n in size)
    return Tiling(size, tiles, step, origin, size)


def below(tiling: Tiling) -> Triple:
    """An image that ends within the last tile."""
    return tuple(
        max(1, o + t * s - s // 3)
        for o, t, s in zip(tiling.origin, tiling.tiles, tiling.step, strict=True)
    )


@pytest.mark.quick(4)
@pytest.mark.parametrize("size", SHAPES)
def test_spectra_of_every_shape(size: Triple) -> None:
    tiling = covering(size)
    check_spectra(tiling, below(tiling), LANES + 3)


@pytest.mark.quick(4)
@pytest.mark.parametrize("size", SHAPES)
def test_wanted_points_of_every_shape(size: Triple) -> None:
    count = tuple(max(1, n - n // 4) for n in size)
    first = tuple((n - m) // 2 for n, m in zip(size, count, strict=True))
    tiling = Tiling(size, (1, 2, 2), count, tuple(-(m // 3) for m in count), count, first)
    check_images(tiling, below(tiling), LANES + 3)


def random_tiling(rng: np.random.Generator) -> tuple[Tiling, Triple]:
    """Tiles of mixed sizes on a lattice, in part or wholly outside of the image, and the image."""

    def triple(low: int, high: int) -> Triple:
        z, y, x = (int(n) for n in rng.integers(low, high, 3))
        return z, y, x

    z, y, x = (int(n) for n in rng.choice([1, 6, 7, 8, 10, 12], 3))
    count = tuple(int(rng.integers(1, n + 1)) for n in (z, y, x))
    first = tuple(int(rng.integers(0, n - m + 1)) for n, m in zip((z, y, x), count, strict=True))
    dilation = triple(1, 4)
    lattice = tuple(int(rng.integers(0, d)) for d in dilation)
    tiling = Tiling((z, y, x), triple(1, 4), count, triple(-9, 4), count, first, dilation, lattice)
    return tiling, triple(4, 26)


@pytest.mark.quick(5)
@pytest.mark.parametrize("seed", range(20))
def test_spectra_of_random_tilings(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tiling, image = random_tiling(rng)
    channels = int(rng.integers(1, 2 * LANES + 2))
    check_spectra(tiling, image, channels, seed)


@pytest.mark.parametrize("seed", range(10))
def test_spectra_of_planar_images(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tiling, image = random_tiling(rng)
    check_spectra(tiling, image, int(rng.integers(1, LANES + 4)), seed, planar=True)


@pytest.mark.quick(5)
@pytest.mark.parametrize("seed", range(20))
def test_wanted_points_of_random_tilings(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tiling, image = random_tiling(rng)
    channels = int(rng.integers(1, 2 * LANES + 2))
    check_images(tiling, image, channels, seed, relu=seed % 3 == 0)


@pytest.mark.quick(5)
@pytest.mark.parametrize("seed", range(20))
def test_overlapping_tiles_add_up(seed: int) -> None:
    """Also where three tiles and more share a voxel."""
    rng = np.random.default_rng(seed)
    tiling, image = random_tiling(rng)
    step = tuple(int(rng.integers(1, n + 1)) for n in tiling.count)
    check_images(replace(tiling, step=step), image, int(rng.integers(1, 2 * LANES + 2)), seed)


@pytest.mark.parametrize("size", [(1, 6, 6), (6, 1, 6), (8, 8, 1)])
def test_points_that_tiles_before_and_behind_share_add_up(size: Triple) -> None:
    """Of four tiles along an axis, by a third of their size apart, the third has no point of its own."""
    step = tuple(max(1, n // 3) for n in size)
    tiling = Tiling(size, tuple(4 if n > 1 else 1 for n in size), step, (0, 0, 0), size)
    check_images(tiling, below(tiling), LANES + 3)


@pytest.mark.parametrize("relu", [False, True])
def test_wanted_points_with_a_bias(relu: bool) -> None:
    tiling = Tiling((8, 6, 10), (2, 1, 2), (6, 4, 7), (-2, -1, 3), (6, 4, 7), (1, 1, 2))
    check_images(tiling, (9, 3, 16), 2 * LANES + 3, bias=True, relu=relu)


@pytest.mark.slow
def test_many_tiles_share_scratch() -> None:
    """More tiles than are transformed at once, in rows with different parts outside."""
    size = (8, 8, 8)
    tiling = Tiling(size, (3, 3, 5), (6, 6, 6), (-1, -2, -3), size)
    check_spectra(tiling, (17, 16, 25), 2 * LANES)
    wanted = Tiling(size, (3, 3, 5), (6, 6, 6), (-1, -2, -3), (6, 6, 6), (2, 1, 0))
    check_images(wanted, (16, 15, 26), 2 * LANES)
    check_images(tiling, (17, 16, 25), 2 * LANES)
