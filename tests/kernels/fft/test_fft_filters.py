"""Filters to spectra and back against scipy in float64."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft
from fft_layout import (
    filters_to_spectra,
    frequencies,
    random,
    spectra,
    spectra_to_filters,
    spread,
    steps,
    to_spectra,
)
from hypothesis import given
from hypothesis import strategies as st
from shares import examples
from znnpy_kernels.fft.filters import filter_spectra
from znnpy_kernels.machine.guards import unguarded
from znnpy_kernels.simd.lanes import LANES

from znnpy.network.types import Triple
from znnpy.plan.fftw import plan_forward
from znnpy.plan.twiddle_tables import plan_filter

CASES = [
    ((8, 8, 8), (3, 3, 3), (1, 1, 1)),
    ((9, 10, 12), (2, 3, 4), (3, 2, 1)),
    ((1, 30, 25), (1, 11, 7), (1, 2, 4)),
    ((13, 5, 40), (13, 5, 9), (1, 1, 4)),
    ((6, 7, 1), (1, 1, 1), (5, 5, 5)),
    ((3, 64, 2), (3, 64, 2), (1, 1, 1)),
]


@pytest.mark.parametrize(("grid", "size", "sparsity"), CASES)
def test_spectra_equal_scipy(grid: Triple, size: Triple, sparsity: Triple) -> None:
    filters = random(3, *size)
    plan = plan_filter(grid, size, sparsity)
    rows = filters_to_spectra(filters, plan)
    wanted = scipy.fft.rfftn(spread(filters, sparsity), grid, axes=(1, 2, 3))
    np.testing.assert_allclose(frequencies(rows, plan), wanted, atol=2e-5 * np.abs(wanted).max())
    kept = rows[:, : grid[0] * grid[1] * plan.row].reshape(3, -1, plan.row)
    assert not kept[..., 2 * (grid[2] // 2 + 1) :].any()
    assert not rows[:, grid[0] * grid[1] * plan.row :].any()


@pytest.mark.parametrize(("grid", "size", "sparsity"), CASES)
def test_taps_are_every_sparsity_th_voxel(grid: Triple, size: Triple, sparsity: Triple) -> None:
    images = random(2, *grid)
    found = spectra_to_filters(
        to_spectra(images, plan_forward(grid)), plan_filter(grid, size, sparsity)
    )
    taps = images[:, :: sparsity[0], :: sparsity[1], :: sparsity[2]]
    np.testing.assert_allclose(found, taps[:, : size[0], : size[1], : size[2]], atol=1e-5)


def test_filters_packed_by_lanes() -> None:
    packed = random(4, 3, 2, LANES)
    plan = plan_filter((6, 5, 7), (4, 3, 2))
    rows = spectra(LANES, plan)
    z, y, x, lane = steps(packed)
    filter_spectra.run(
        source=packed, source_z=z, source_y=y, source_x=x, source_filter=lane,
        target=rows, target_filter=plan.floats, filters=LANES, plan=unguarded(plan.address),
    )  # fmt: skip
    wanted = scipy.fft.rfftn(np.moveaxis(packed, -1, 0).astype(float), (6, 5, 7), axes=(1, 2, 3))
    np.testing.assert_allclose(frequencies(rows, plan), wanted, atol=1e-4)


def test_nan_spreads_over_the_spectrum() -> None:
    filters = random(1, 3, 3, 3)
    filters[0, 1, 2, 1] = np.inf
    plan = plan_filter((8, 6, 9), (3, 3, 3))
    found = frequencies(filters_to_spectra(filters, plan), plan)
    assert not np.isfinite(found.real).any()


@examples(20)
@given(*[st.tuples(*[st.integers(1, most)] * 3) for most in (5, 3, 9)])
def test_there_and_back(size: Triple, sparsity: Triple, more: Triple) -> None:
    extents = [(k - 1) * s + 1 for k, s in zip(size, sparsity, strict=True)]
    grid = tuple(extent + extra for extent, extra in zip(extents, more, strict=True))
    plan = plan_filter(grid, size, sparsity)
    filters = random(2, *size)
    found = spectra_to_filters(filters_to_spectra(filters, plan), plan)
    np.testing.assert_allclose(found, filters, atol=1e-5)
