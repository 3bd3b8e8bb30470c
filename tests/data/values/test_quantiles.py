"""Quantiles by digits beside NumPy's percentile, for all types and however the values are cut into pieces."""

from __future__ import annotations

import numpy as np
import pytest

from znnpy.data.values.quantiles import quantiles

SHARES = (0.0, 0.005, 0.3, 0.5, 0.99, 1.0)
TYPES = ["?", "u1", "i1", "u2", "i2", "f2", "u4", "i4", "f4", "u8", "i8", "f8"]


def values_of(dtype: np.dtype, count: int) -> np.ndarray:
    random = np.random.default_rng(count)
    if dtype.kind == "f":
        return (random.standard_normal(count) * 10.0 ** random.integers(-3, 4, count)).astype(dtype)
    if dtype.kind == "b":
        return random.integers(0, 2, count).astype(bool)
    ends = np.iinfo(dtype)
    return random.integers(ends.min, ends.max, count, dtype, endpoint=True)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_as_numpy_has_them(name: str, count: int) -> None:
    values = values_of(np.dtype(name), count)
    half = values[::-1][: count // 2 + 1]
    parts = [[values[at : at + 300], half[at : at + 300]] for at in range(0, count, 300)]
    found = quantiles(lambda: parts, 2, values.dtype, SHARES)
    for got, all_values in zip(found, (values, half), strict=True):
        wanted = np.percentile(all_values.astype(np.float64), [100 * it for it in SHARES])
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-300)


def test_equal_values_and_zeros_of_both_signs() -> None:
    values = np.array([0.0, -0.0, 5, 5, 5, -5], np.float32)
    found = quantiles(lambda: [[values]], 1, np.float32, (0, 0.4, 1))
    assert found == [[-5.0, 0.0, 5.0]]


def test_a_channel_without_values_has_none() -> None:
    nothing = np.zeros(0, np.int16)
    assert quantiles(
        lambda: [[nothing, nothing + 1], [np.int16([3]), nothing]], 2, "i2", (0.5,)
    ) == [
        [3.0],
        [],
    ]
