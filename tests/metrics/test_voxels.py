"""Scores of decisions and of values against definitions, NumPy's, and cases by hand."""

from __future__ import annotations

from math import isnan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from znnpy.errors import ShapeError, VolumeError
from znnpy.metrics import (
    absolute_error,
    accuracy,
    average_precision,
    correlation,
    squared_error,
    voxel_error,
)

VOXELS = st.lists(
    st.tuples(st.integers(0, 5), st.booleans(), st.sampled_from([0.0, 0.5, 1.0, 3.0])),
    min_size=1,
    max_size=20,
)


def test_average_precision_by_hand() -> None:
    """Ranked + - + -: precision 1 at recall 1/2, 2/3 at recall 1."""
    score, target = np.array([0.9, 0.8, 0.7, 0.1]), np.array([1, 0, 1, 0])
    assert average_precision(score, target) == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)
    assert average_precision(-score, target) == pytest.approx(0.5 * 1 / 2 + 0.5 * 2 / 4)
    assert average_precision(np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1])) == (
        pytest.approx(0.8333333)
    )


def test_ties_enter_together() -> None:
    """A constant score cannot rank: the share of positives, in whatever order voxels come."""
    target = np.array([1, 1, 0, 0, 0, 0, 0, 0])
    assert average_precision(np.zeros(8), target) == pytest.approx(0.25)
    assert average_precision(np.zeros(8), target[::-1]) == pytest.approx(0.25)
    score = np.array([1, 1, 0, 0, 0, 0, 0, 0])
    assert average_precision(score, np.array([1, 0, 0, 1, 0, 0, 0, 0])) == pytest.approx(
        0.5 * 1 / 2 + 0.5 * 2 / 8
    )


@given(VOXELS)
def test_average_precision_is_the_sum_over_thresholds(
    voxels: list[tuple[int, bool, float]],
) -> None:
    score, target, weight = (np.array(column, np.float64) for column in zip(*voxels, strict=True))
    total, before, expected = (weight * target).sum(), 0.0, 0.0
    for threshold in sorted(set(score), reverse=True):
        above = score >= threshold
        true = (weight * target)[above].sum()
        if true > before:
            expected += (true - before) / total * true / weight[above].sum()
        before = true
    got = average_precision(score, target, weight)
    assert np.isnan(got) if total == 0 else got == pytest.approx(expected)


@given(VOXELS)
def test_voxel_error(voxels: list[tuple[int, bool, float]]) -> None:
    score, target, weight = (np.array(column, np.float64) for column in zip(*voxels, strict=True))
    wrong = sum(w for s, t, w in voxels if (s > 2) != t)
    got = voxel_error(score, target, weight, threshold=2)
    assert np.isnan(got) if weight.sum() == 0 else got == pytest.approx(wrong / weight.sum())


def test_voxel_error_by_hand() -> None:
    prediction = np.array([0.5, 0.6, 0.2, 0.9]).reshape(1, 1, 2, 2)
    target = np.array([0, 1, 1, 0]).reshape(1, 1, 2, 2)
    assert voxel_error(prediction, target) == 0.5
    assert voxel_error(prediction, target, np.array([1, 1, 0, 2]).reshape(1, 1, 2, 2)) == 0.5
    assert voxel_error(prediction, target, threshold=0.1) == 0.5


def test_refused() -> None:
    with pytest.raises(ShapeError, match="one shape"):
        voxel_error(np.zeros(3), np.zeros(4))
    with pytest.raises(VolumeError, match=r"NaN at \[1, 0\]"):
        average_precision(np.array([[0.0], [np.nan]]), np.ones((2, 1)))


def test_accuracy_is_the_share_of_largest_images():
    target = np.eye(3)[:, [0, 1, 2, 2], None, None]
    found = np.array([[0.9, 0.1, 0.4, 0.5], [0.05, 0.2, 0.4, 0.1], [0.05, 0.7, 0.2, 0.4]])
    found = found[:, :, None, None]
    assert accuracy(target, target) == 1
    assert accuracy(found, target) == 0.25
    weight = np.broadcast_to(np.array([3.0, 1.0, 0.0, 0.0])[:, None, None], target.shape)
    assert accuracy(found, target, weight) == 0.75
    assert np.isnan(accuracy(found, target, np.zeros_like(target)))


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


def test_values_that_are_refused() -> None:
    with pytest.raises(ShapeError, match="one shape"):
        squared_error(np.zeros(3), np.zeros(4))
    with pytest.raises(VolumeError, match=r"NaN at \[1\]"):
        correlation(np.array([0, np.nan]), np.zeros(2))
