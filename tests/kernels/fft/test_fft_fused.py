"""Kernels that transform filters on the way do what the separate kernels do."""

from __future__ import annotations

import numpy as np
import pytest
from fft_layout import (
    filters_to_spectra,
    frequencies,
    random,
    spectra,
    spectra_to_filters,
    steps,
    to_spectra,
)
from znnpy_kernels.fft.fused_products import filter_gradients, filtered_sum
from znnpy_kernels.fft.products import spectral_product
from znnpy_kernels.machine.guards import unguarded

from znnpy.network.types import Triple
from znnpy.plan.fftw import plan_forward
from znnpy.plan.twiddle_tables import plan_filter

GRID: Triple = (10, 9, 12)
OUT: Triple = (6, 7, 4)
PLAN = ((3, 2, 3), (2, 2, 4))
TERMS, ROWS = 5, 3


@pytest.mark.parametrize("group", [1, 2, 5, 8])
@pytest.mark.parametrize(("conjugate", "add"), [(1, 0), (0, 1)])
def test_filtered_sum(group: int, conjugate: int, add: int) -> None:
    plan = plan_filter(GRID, *PLAN)
    images = to_spectra(random(TERMS * ROWS, *GRID), plan_forward(GRID))
    filters = random(TERMS, *PLAN[0], seed=1)
    start = to_spectra(random(ROWS, *GRID, seed=2), plan_forward(GRID))
    wanted, found, scratch = start.copy(), start.copy(), spectra(3 * group, plan)
    term, z, y, x = steps(filters)
    filtered_sum.run(
        worker=1, images=images, images_term=ROWS * plan.floats,
        images_row=plan.floats, source=filters, source_z=z, source_y=y, source_x=x,
        source_term=term, out=found, out_row=plan.floats, terms=TERMS, rows=ROWS,
        conjugate=conjugate, add=add, group=group, scratch=scratch,
        scratch_worker=group * plan.floats, plan=unguarded(plan.address),
    )  # fmt: skip
    kept = filters_to_spectra(filters, plan)
    spectral_product.run(
        a=images, a_term=ROWS * plan.floats, a_row=plan.floats, b=kept,
        b_term=plan.floats, b_column=0, out=wanted, out_row=plan.floats, out_column=0,
        terms=TERMS, rows=ROWS, columns=1, floats=plan.floats, conjugate=conjugate, add=add,
    )  # fmt: skip
    np.testing.assert_allclose(frequencies(found, plan), frequencies(wanted, plan), atol=1e-2)
    scale = np.abs(frequencies(wanted, plan)).max()
    assert np.abs(frequencies(found - wanted, plan)).max() < 1e-6 * scale
    if group >= TERMS:
        np.testing.assert_array_equal(found, wanted)
    assert np.isnan(scratch[:group]).all()
    assert np.isnan(scratch[2 * group :]).all()


@pytest.mark.parametrize(("a_filters", "b_filters"), [(1, 4), (4, 1)])
def test_filter_gradients_equal_the_separate_kernels(a_filters: int, b_filters: int) -> None:
    plan, batch = plan_filter(GRID, *PLAN), 2
    X = to_spectra(random(batch * a_filters, *GRID), plan_forward(GRID))
    DY = to_spectra(random(batch * b_filters, *OUT, seed=1), plan_forward(GRID, OUT))
    found, scratch = np.full((4, *PLAN[0]), np.nan, np.float32), spectra(2, plan)
    each, z, y, x = steps(found)
    filter_gradients.run(
        worker=1, a=X, a_term=a_filters * plan.floats,
        a_filter=plan.floats if a_filters > 1 else 0, b=DY,
        b_term=b_filters * plan.floats, b_filter=plan.floats if b_filters > 1 else 0, terms=batch,
        target=found, target_z=z, target_y=y, target_x=x, target_filter=each,
        filters=4, scratch=scratch, scratch_worker=plan.floats, plan=unguarded(plan.address),
    )  # fmt: skip
    products = spectra(4, plan)
    spectral_product.run(
        a=X, a_term=a_filters * plan.floats, a_row=plan.floats, b=DY,
        b_term=b_filters * plan.floats, b_column=plan.floats, out=products,
        out_row=b_filters * plan.floats, out_column=plan.floats, terms=batch, rows=a_filters,
        columns=b_filters, floats=plan.floats, conjugate=1, add=0,
    )  # fmt: skip
    np.testing.assert_array_equal(found, spectra_to_filters(products, plan))
    assert np.isnan(scratch[0]).all()
