"""Voxel error and average precision against definitions and hand-computed cases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from znnpy.errors import ShapeError, VolumeError
from znnpy.metrics import accuracy, average_precision, voxel_error

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
