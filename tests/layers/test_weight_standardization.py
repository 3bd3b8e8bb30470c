"""Weight standardisation in float64: statistics, and the gradient beside finite differences."""

import numpy as np
import pytest

from znnpy.layers.weight_standardization import standardized, standardized_gradient


@pytest.mark.parametrize("seed", range(5))
def test_filters_have_mean_0_and_variance_1_by_output(seed):
    filters = np.random.default_rng(seed).normal(3, 2, (4, 5, 2, 3, 3))
    found = standardized(filters)
    np.testing.assert_allclose(found.mean((1, 2, 3, 4)), 0, atol=1e-12)
    np.testing.assert_allclose(found.var((1, 2, 3, 4)), 1, rtol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_the_gradient_is_that_of_finite_differences(seed):
    rng = np.random.default_rng(seed)
    filters, gradient, along = rng.standard_normal((3, 2, 3, 1, 2, 2))
    step = 1e-6 * along
    slope = np.vdot(standardized(filters + step) - standardized(filters - step), gradient) / 2e-6
    found = np.vdot(standardized_gradient(filters, gradient), along)
    assert found == pytest.approx(slope, rel=1e-6)
