"""The three passes of a convolution, composed of the FFT kernels, against sums of taps in float64."""

from __future__ import annotations

import numpy as np
import pytest
from correlation import correlated
from fft_layout import (
    Floats,
    filters_to_spectra,
    random,
    spectra,
    spectra_to_filters,
    spread,
    to_images,
    to_spectra,
)
from znnpy_kernels.fft.products import spectral_product

from znnpy.network.types import Triple
from znnpy.plan.fftw import good_size, plan_forward, plan_inverse
from znnpy.plan.twiddle_tables import plan_filter

CASES = [
    ((10, 11, 12), (3, 3, 3), (1, 1, 1)),
    ((9, 17, 13), (2, 5, 3), (3, 2, 4)),
    ((1, 19, 22), (1, 7, 4), (1, 3, 5)),
]
INPUTS, OUTPUTS, BATCH = 3, 5, 2


class Case:
    """Random images, filters and output gradients, and their spectra on one grid."""

    def __init__(self, image: Triple, size: Triple, sparsity: Triple, fast: bool) -> None:
        self.sparsity, self.image = sparsity, image
        self.grid: Triple = tuple(map(good_size, image)) if fast else image
        reach = [(k - 1) * s for k, s in zip(size, sparsity, strict=True)]
        self.out: Triple = tuple(n - r for n, r in zip(image, reach, strict=True))
        self.x, self.w = random(BATCH, INPUTS, *image), random(OUTPUTS, INPUTS, *size, seed=1)
        self.dy = random(BATCH, OUTPUTS, *self.out, seed=2)
        self.filters = plan_filter(self.grid, size, sparsity)
        flat = self.x.reshape(-1, *image)
        self.X = to_spectra(flat, plan_forward(self.grid, image)).reshape(BATCH, INPUTS, -1)
        flat = self.dy.reshape(-1, *self.out)
        self.DY = to_spectra(flat, plan_forward(self.grid, self.out)).reshape(BATCH, OUTPUTS, -1)
        flat = self.w.reshape(-1, *size)
        self.W = filters_to_spectra(flat, self.filters).reshape(OUTPUTS, INPUTS, -1)

    def product(self, a: Floats, b: Floats, conjugate: int) -> Floats:
        """sum over t of a[t, p] b[t, q]: strides say which axis is which."""
        out = spectra(a.shape[1] * b.shape[1], self.filters)
        out = out.reshape(a.shape[1], b.shape[1], -1)
        step = [s // 4 for array in (a, b, out) for s in array.strides[:2]]
        spectral_product.run(
            a=a, a_term=step[0], a_row=step[1], b=b, b_term=step[2],
            b_column=step[3], out=out, out_row=step[4], out_column=step[5],
            terms=a.shape[0], rows=a.shape[1], columns=b.shape[1], floats=a.shape[2],
            conjugate=conjugate, add=0,
        )  # fmt: skip
        return out.reshape(-1, out.shape[-1])


@pytest.fixture(params=[True, False], ids=["good size", "exact size"])
def case(request: pytest.FixtureRequest, layer: tuple[Triple, Triple, Triple]) -> Case:
    return Case(*layer, fast=request.param)


@pytest.fixture(params=CASES, ids=str)
def layer(request: pytest.FixtureRequest) -> tuple[Triple, Triple, Triple]:
    chosen: tuple[Triple, Triple, Triple] = request.param
    return chosen


def test_forward(case: Case) -> None:
    summed = case.product(case.X.swapaxes(0, 1), case.W.swapaxes(0, 1), 1)
    found = to_images(summed, plan_inverse(case.grid, case.out))
    taps = spread(case.w, case.sparsity)
    for n in range(BATCH):
        for o in range(OUTPUTS):
            parts = [correlated(case.x[n, c], taps[o, c]) for c in range(INPUTS)]
            np.testing.assert_allclose(found[n * OUTPUTS + o], sum(parts), atol=2e-4)


def test_data_gradient(case: Case) -> None:
    summed = case.product(case.DY.swapaxes(0, 1), case.W, 0)
    found = to_images(summed, plan_inverse(case.grid, case.image))
    taps = spread(case.w, case.sparsity)[..., ::-1, ::-1, ::-1]
    border = [(n - 1, n - 1) for n in taps.shape[2:]]
    for n in range(BATCH):
        for c in range(INPUTS):
            parts = [correlated(np.pad(case.dy[n, o], border), taps[o, c]) for o in range(OUTPUTS)]
            np.testing.assert_allclose(found[n * INPUTS + c], sum(parts), atol=2e-4)


def test_weight_gradient(case: Case) -> None:
    summed = case.product(case.X, case.DY, 1)
    found = spectra_to_filters(summed, case.filters).reshape(INPUTS, OUTPUTS, *case.w.shape[2:])
    z, y, x = case.sparsity
    for c in range(INPUTS):
        for o in range(OUTPUTS):
            parts = [correlated(case.x[n, c], case.dy[n, o]) for n in range(BATCH)]
            np.testing.assert_allclose(found[c, o], sum(parts)[::z, ::y, ::x], atol=1e-3)
