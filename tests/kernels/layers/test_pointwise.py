"""Functions of rows of values against SciPy, at every length around a vector's."""

import numpy as np
import pytest
from scipy.special import expit
from znnpy_kernels.layers.pointwise import logistic_values
from znnpy_kernels.simd.lanes import LANES


@pytest.mark.parametrize("length", [0, 1, LANES - 1, LANES, LANES + 1, 5 * LANES + 3])
def test_logistic(length: int) -> None:
    values = np.random.default_rng(length).normal(0, 20, length + 1).astype(np.float32)
    found = values.copy()
    logistic_values.run(values, found, length)
    assert found[:length] == pytest.approx(expit(values[:length].astype(np.float64)), rel=1e-6)
    assert found[length] == values[length]
    logistic_values.run(values, values, length)
    assert np.array_equal(values, found)


def test_logistic_over_the_whole_range() -> None:
    near = np.linspace(-87, 87, 200_001)
    far = np.concatenate([sign * np.logspace(-44, 38, 10_001) for sign in (-1, 1)])
    named = [-16, -30, -80, -np.inf, np.inf, -3.4e38, 3.4e38, 0.0]
    values = np.concatenate([near, far, named]).astype(np.float32)
    found = np.empty_like(values)
    logistic_values.run(values, found, values.size)
    exact = expit(values.astype(np.float64))
    # Below the smallest normal float32 there are fewer digits to be right in.
    np.testing.assert_allclose(found, exact, rtol=3e-7, atol=1.2e-38)
