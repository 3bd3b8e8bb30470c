"""Errors and correlation of values against NumPy's, weighted and by hand."""

from __future__ import annotations

from math import isnan

import numpy as np
import pytest

from znnpy.errors import ShapeError, VolumeError
from znnpy.metrics import absolute_error, correlation, squared_error

RANDOM = np.random.default_rng(0)


def test_by_hand() -> None:
    found, wanted = np.array([1.0, 2.0, 5.0]), np.array([1.0, 4.0, 4.0])
    assert squared_error(found, wanted) == pytest.approx(5 / 3)
    assert absolute_error(found, wanted) == 1
    assert squared_error(found, wanted, np.array([0, 1, 3])) == pytest.approx(7 / 4)
    assert absolute_error(found, wanted, np.array([0, 1, 3])) == pytest.approx(5 / 4)


def test_correlation_is_numpys_and_counts_by_weight() -> None:
    found, wanted = RANDOM.normal(size=(2, 3, 4, 5))
    assert correlation(found, wanted) == pytest.approx(
        np.corrcoef(found.reshape(-1), wanted.reshape(-1))[0, 1]
    )
    weight = RANDOM.integers(0, 4, found.shape)
    many = [np.repeat(values.reshape(-1), weight.reshape(-1)) for values in (found, wanted)]
    wanted[weight == 0] = np.nan  # whatever it is, it does not count
    assert correlation(found, wanted, weight) == pytest.approx(np.corrcoef(*many)[0, 1])


def test_what_has_no_score_is_nan() -> None:
    some, none = RANDOM.normal(size=(2, 3)), np.zeros((2, 3))
    assert isnan(correlation(some, np.full((2, 3), 0.1)))
    assert isnan(correlation(np.full((2, 3), 0.1), some))
    assert all(isnan(score(some, some, none)) for score in (squared_error, absolute_error))
    assert isnan(correlation(some, some, none))


def test_refused() -> None:
    with pytest.raises(ShapeError, match="one shape"):
        squared_error(np.zeros(3), np.zeros(4))
    with pytest.raises(VolumeError, match=r"NaN at \[1\]"):
        correlation(np.array([0, np.nan]), np.zeros(2))
