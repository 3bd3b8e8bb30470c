"""Which rate a range test suggests, of curves whose steepest place is known; what counts as divergence."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter1d

from znnpy.train.rate_range import rising
from znnpy.train.rate_suggestion import WIDTH, Divergence, smooth, suggest_rate

RATES = rising(1e-6, 10.0, 200)


def fall(centre: float, noise: float = 0.0) -> list[float]:
    """Losses from 1 to 0.2 that fall fastest at one rate, and rise without bound from 1 on."""
    across = np.log(np.array(RATES) / centre)
    rise = np.exp(np.maximum(0, np.log(RATES))) - 1
    random = np.random.default_rng(0).standard_normal(len(RATES))
    return list(1 - 0.8 / (1 + np.exp(-across)) + rise + noise * random)


@pytest.mark.parametrize("centre", [1e-4, 1e-3, 3e-2])
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_the_rate_is_that_of_the_steepest_descent(centre: float, noise: float) -> None:
    found = suggest_rate(RATES, fall(centre, noise), None)
    assert found.rate == found.steepest is not None
    # A rate apart is a factor of 1.08.
    assert abs(np.log10(found.rate / centre)) < (0.05 if noise == 0 else 0.5)


def test_it_is_at_most_a_tenth_of_that_of_divergence() -> None:
    found = suggest_rate(RATES, fall(1e-2), 0.02)
    assert found.rate == pytest.approx(0.002)
    assert found.steepest == pytest.approx(1e-2, rel=0.1)


def test_nothing_is_suggested_where_the_loss_does_not_fall() -> None:
    random = np.random.default_rng(1).standard_normal(len(RATES))
    for losses in (1 + 0.1 * random, np.array(RATES), [1.0] * 200):
        assert suggest_rate(RATES, list(losses), None).rate is None
    assert suggest_rate(RATES[:2], [2.0, 1.0], None).rate is None


def test_a_divergence_by_powers_of_ten_moves_nothing() -> None:
    losses = fall(1e-1)
    wild = [*losses[:180], *(10.0**n for n in range(5, 25))]
    found = suggest_rate(RATES, wild, None)
    assert found.rate == suggest_rate(RATES, losses, None).rate is not None
    assert found.smoothed.max() < 2


def test_smoothing_is_that_of_scipy_over_what_is_there() -> None:
    values = np.random.default_rng(2).standard_normal(101)
    how = {"sigma": 101 * WIDTH, "mode": "constant", "truncate": 100.0}
    wanted = gaussian_filter1d(values, **how) / gaussian_filter1d(np.ones(101), **how)
    np.testing.assert_allclose(smooth(values), wanted, atol=1e-14)


def test_divergence_is_four_times_the_least_and_above_the_first() -> None:
    def heard(*losses: float) -> list[bool]:
        watch = Divergence()
        return [watch.heard(loss) for loss in losses]

    assert not any(heard(*[1.0] * 50, *[0.1] * 50, *[0.9] * 50))  # as bad as in the beginning
    assert any(heard(*[1.0] * 50, *[0.1] * 50, *[2.0] * 50))
    assert not any(heard(*[1.0] * 50, 5.0, *[1.0] * 50))  # one bad batch
    assert any(heard(*[1.0] * 50, *[5.0] * 50))
    assert not any(heard(*[-1.0] * 50, *[-2.0] * 50, *[-1.5] * 50))
    assert any(heard(*[-1.0] * 50, *[6.0] * 50))
    for wrong in (float("nan"), float("inf")):
        assert heard(1.0, wrong) == [False, True]
