"""Sums of products of spectra against NumPy in complex128."""

from __future__ import annotations

import numpy as np
import pytest
from fft_layout import random
from znnpy_kernels.fft.products import spectral_product
from znnpy_kernels.machine.guards import address


def product(
    a: np.ndarray, b: np.ndarray, out: np.ndarray, conjugate: int, add: int, start: int, stop: int
) -> None:
    """out[p, q] = sum_t a[t, p] b[t, q] for floats start..stop."""
    terms, rows, floats = a.shape
    columns = b.shape[1]
    spectral_product.run(
        a=address(a) + 4 * start, a_term=rows * floats, a_row=floats,
        b=address(b) + 4 * start, b_term=columns * floats, b_column=floats,
        out=address(out) + 4 * start, out_row=columns * floats, out_column=floats,
        terms=terms, rows=rows, columns=columns, floats=stop - start, conjugate=conjugate, add=add,
    )  # fmt: skip


@pytest.mark.parametrize("add", [0, 1])
@pytest.mark.parametrize("conjugate", [0, 1])
@pytest.mark.parametrize(
    ("terms", "rows", "columns"), [(1, 1, 1), (7, 1, 6), (3, 2, 4), (4, 5, 9), (1, 4, 4)]
)
def test_product(terms: int, rows: int, columns: int, conjugate: int, add: int) -> None:
    floats = 16 * 7
    a, b = random(terms, rows, floats), random(terms, columns, floats, seed=1)
    out = random(rows, columns, floats, seed=2)
    right = b.view(np.complex64).astype(np.complex128)
    wanted = np.einsum(
        "tpf,tqf->pqf",
        a.view(np.complex64).astype(np.complex128),
        right.conj() if conjugate else right,
    )
    if add:
        wanted += out.view(np.complex64)
    product(a, b, out, conjugate, add, 0, floats)
    np.testing.assert_allclose(out.view(np.complex64), wanted, atol=1e-5)


def test_parts_of_the_frequencies_give_the_same_bits_and_touch_no_more() -> None:
    a, b = random(6, 3, 160), random(6, 5, 160, seed=1)
    whole, parts = np.zeros((3, 5, 160), np.float32), np.full((3, 5, 160), 7, np.float32)
    product(a, b, whole, 1, 0, 0, 160)
    product(a, b, parts, 1, 0, 16, 64)
    product(a, b, parts, 1, 0, 64, 144)
    np.testing.assert_array_equal(parts[..., 16:144], whole[..., 16:144])
    assert (parts[..., :16] == 7).all()
    assert (parts[..., 144:] == 7).all()


def test_rows_together_or_apart_give_the_same_bits() -> None:
    a, b = random(5, 3, 96), random(5, 6, 96, seed=1)
    whole, single = np.zeros((2, 3, 6, 96), np.float32)
    product(a, b, whole, 0, 0, 0, 96)
    for p in range(3):
        for q in range(6):
            one = np.zeros((1, 1, 96), np.float32)
            left, right = (
                np.ascontiguousarray(a[:, p : p + 1]),
                np.ascontiguousarray(b[:, q : q + 1]),
            )
            product(left, right, one, 0, 0, 0, 96)
            single[p, q] = one
    np.testing.assert_array_equal(whole, single)


def test_nan_propagates() -> None:
    a, b = random(3, 1, 16), random(3, 2, 16, seed=1)
    a[1, 0, 4] = np.nan
    out = np.zeros((1, 2, 16), np.float32)
    product(a, b, out, 1, 0, 0, 16)
    assert np.isnan(out[..., 4:6]).all()
    assert np.isfinite(out[..., :4]).all()
