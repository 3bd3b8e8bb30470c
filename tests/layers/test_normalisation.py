"""Normalisation of nodes and filters in float64: definitions and gradients."""

from __future__ import annotations

import numpy as np
import pytest

from znnpy.layers import normalization
from znnpy.layers.normalization import standardized, standardized_gradient
from znnpy.layers.types import Norm

KINDS = [
    Norm("batch"),
    Norm("instance"),
    Norm("group", 3),
    Norm("layer"),
    Norm("batch", epsilon=0.5),
]
SHAPE = (2, 6, 2, 3, 2)


def values(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SHAPE) * 2 + 3


@pytest.mark.parametrize("norm", KINDS, ids=str)
def test_groups_have_mean_0_and_variance_1(norm: Norm) -> None:
    x = values()
    by = normalization.statistics(x, norm)
    unit = normalization.normalised(x, norm, by)
    over = {"batch": (0, 2, 3, 4), "instance": (2, 3, 4)}
    if norm.kind in over:
        mean, variance = unit.mean(over[norm.kind]), unit.var(over[norm.kind])
    else:
        parts = unit.reshape(2, norm.parts(6), -1)
        mean, variance = parts.mean(-1), parts.var(-1)
    np.testing.assert_allclose(mean, 0, atol=1e-12)
    spread = by.variance.reshape(variance.shape)
    np.testing.assert_allclose(variance, spread / (spread + norm.epsilon))


@pytest.mark.parametrize("norm", KINDS, ids=str)
def test_gradients_by_finite_differences(norm: Norm) -> None:
    x, wanted, step = values(), values(1), 1e-5

    def loss(x: np.ndarray) -> float:
        found = normalization.normalised(x, norm, normalization.statistics(x, norm))
        return float((found * wanted).sum())

    gradient = normalization.normalised_gradient(x, wanted, norm)
    for place in [(0, 0, 0, 0, 0), (1, 5, 1, 2, 1), (0, 3, 1, 0, 1)]:
        moved = np.zeros(SHAPE)
        moved[place] = step
        slope = (loss(x + moved) - loss(x - moved)) / (2 * step)
        assert gradient[place] == pytest.approx(slope, rel=1e-5, abs=1e-7)


def test_running_statistics_take_unbiased_variances() -> None:
    x = values()
    mean, variance = normalization.moved(
        np.full(6, 5.0), np.full(6, 7.0), x, Norm("batch", momentum=0.25)
    )
    over = (0, 2, 3, 4)
    np.testing.assert_allclose(mean, 0.75 * 5 + 0.25 * x.mean(over))
    np.testing.assert_allclose(variance, 0.75 * 7 + 0.25 * x.var(over, ddof=1))


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
