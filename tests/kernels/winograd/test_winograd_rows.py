"""Minimal filtering along x alone, of few planar inputs, against float64 references."""

import direct_cases
import numpy as np
import pytest
from direct_cases import Case, check_forward
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd.rows import KERNELS, NEW, TILES


@pytest.fixture(autouse=True)
def own_kernels(monkeypatch):
    monkeypatch.setattr(direct_cases, "forward_kernel", lambda blocks, _: KERNELS[blocks - 1])


@pytest.mark.parametrize("inputs", [1, 3, 4])
@pytest.mark.parametrize("slope", [None, 1.0, 0.0, 0.1])
def test_forward(inputs, slope):
    case = Case(inputs, 3 * LANES - 1, (2, 7, 30), (1, 5, 5), planar=True)
    check_forward(case, np.random.default_rng(inputs), slope=slope)


@pytest.mark.parametrize("taps_y", range(1, 9))
def test_rows_of_taps(taps_y):
    case = Case(3, 2 * LANES, (1, 11, 9), (1, taps_y, 5), planar=True)
    check_forward(case, np.random.default_rng(taps_y))


@pytest.mark.parametrize(
    "width", [*range(1, 10), *(NEW * n + d for n in (TILES, LANES) for d in (-1, 0, 1)), 200]
)
def test_widths(width):
    case = Case(2, LANES, (1, 3, width), (1, 3, 5), planar=True)
    check_forward(case, np.random.default_rng(width))
