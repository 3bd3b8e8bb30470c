"""Packed filters to tile spectra, and tile spectra to packed gradients, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest
from direct_cases import Triple
from tile_cases import check_filter_gradients, check_filters
from znnpy_kernels.simd.lanes import LANES

CASES = [
    ((8, 8, 8), (3, 3, 3), (5, 7)),
    ((16, 16, 16), (5, 5, 5), (LANES + 1, 3)),
    ((12, 12, 12), (7, 7, 7), (3, LANES + 2)),
    ((1, 24, 24), (1, 3, 3), (LANES + 3, 3 * LANES - 1)),
    ((1, 8, 12), (1, 8, 12), (2, 1)),
    ((8, 1, 32), (3, 1, 2), (1, 2 * LANES)),
    ((20, 8, 1), (2, 5, 1), (LANES, LANES)),
    ((14, 10, 18), (7, 3, 9), (3, LANES + 1)),
    ((28, 6, 30), (5, 5, 3), (2, 3)),
    ((7, 11, 15), (3, 5, 7), (3, 2)),
]


@pytest.mark.quick(6)
@pytest.mark.parametrize(("size", "taps", "images"), CASES)
@pytest.mark.parametrize("conjugate", [False, True])
def test_filters(size: Triple, taps: Triple, images: tuple[int, int], conjugate: bool) -> None:
    check_filters(size, taps, images, conjugate=conjugate)


@pytest.mark.quick(6)
@pytest.mark.parametrize(("size", "taps", "images"), CASES)
@pytest.mark.parametrize("accumulate", [False, True])
def test_gradients(size: Triple, taps: Triple, images: tuple[int, int], accumulate: bool) -> None:
    check_filter_gradients(size, taps, images, accumulate=accumulate)


@pytest.mark.quick(3)
@pytest.mark.parametrize("seed", range(10))
def test_random_filters(seed: int) -> None:
    rng = np.random.default_rng(seed)
    z, y, x = (int(n) for n in rng.choice([1, 6, 8, 10, 12, 14, 18], 3))
    taps = tuple(int(rng.integers(1, n + 1)) for n in (z, y, x))
    inputs, outputs = (int(n) for n in rng.integers(1, 2 * LANES + 3, 2))
    check_filters((z, y, x), taps, (inputs, outputs), seed, conjugate=bool(seed % 2))
    check_filter_gradients((z, y, x), taps, (inputs, outputs), seed, accumulate=bool(seed % 2))
