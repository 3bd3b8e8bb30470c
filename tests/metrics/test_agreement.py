"""Adapted Rand and variation of information, pinned by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from skimage.metrics import adapted_rand_error, variation_of_information

from znnpy.errors import ShapeError
from znnpy.metrics import adapted_rand, variation
from znnpy.metrics.agreement import contingency, splits_and_merges

PAIR = st.tuples(
    arrays(np.int64, (3, 4), elements=st.integers(1, 4)),
    arrays(np.int64, (3, 4), elements=st.integers(1, 4)),
)


def test_merger_costs_precision() -> None:
    """Two objects of 2 voxels merged: 6 pairs joined, 2 of them right; both pairs of truth found."""
    score = adapted_rand(np.array([1, 1, 2, 2]), np.array([5, 5, 5, 5]))
    assert score.precision == pytest.approx(2 / 6)
    assert score.recall == 1
    assert score.error == pytest.approx(1 - 2 * (1 / 3) / (1 / 3 + 1))
    found = variation(np.array([1, 1, 2, 2]), np.array([5, 5, 5, 5]))
    assert (found.split, found.merge) == pytest.approx((0, 1))


def test_split_costs_recall() -> None:
    """One object of 4 voxels in halves: the 2 pairs joined are right; 2 of 6 pairs found."""
    score = adapted_rand(np.array([3, 3, 3, 3]), np.array([1, 1, 2, 2]))
    assert score.precision == 1
    assert score.recall == pytest.approx(2 / 6)
    found = variation(np.array([3, 3, 3, 3]), np.array([1, 1, 2, 2]))
    assert (found.split, found.merge) == pytest.approx((1, 0))
    assert found.total == pytest.approx(1)


def test_unlabelled_truth_does_not_count() -> None:
    truth, found = np.array([1, 1, 0, 0, 2, 2]), np.array([1, 1, 1, 2, 2, 2])
    assert adapted_rand(truth, found).error == 0
    assert variation(truth, found).total == 0


def test_unassigned_voxels_are_objects_of_their_own() -> None:
    """Of 4 voxels two are unassigned: 1 of 6 pairs found; sizes 2, 1, 1 have 1.5 bits."""
    truth, found = np.array([1, 1, 1, 1]), np.array([7, 7, 0, 0])
    score = adapted_rand(truth, found)
    assert (score.precision, score.recall) == pytest.approx((1, 1 / 6))
    assert variation(truth, found).split == pytest.approx(1.5)
    assert adapted_rand(truth, np.zeros(4, int)).recall == 0


@given(PAIR)
def test_error_is_that_of_scikit_image(pair: tuple[np.ndarray, np.ndarray]) -> None:
    truth, found = pair
    pairs = sum(n * (n - 1) for a in pair for n in np.unique(a, return_counts=True)[1])
    if pairs:
        assert adapted_rand(truth, found).error == pytest.approx(
            adapted_rand_error(truth, found)[0]
        )


@given(PAIR)
def test_variation_is_that_of_scikit_image(pair: tuple[np.ndarray, np.ndarray]) -> None:
    found = variation(*pair)
    expected = variation_of_information(*pair)
    assert (found.split, found.merge) == pytest.approx(expected, abs=1e-12)


@given(PAIR)
def test_exchanging_both_exchanges_the_scores(pair: tuple[np.ndarray, np.ndarray]) -> None:
    one, other = adapted_rand(*pair), adapted_rand(*pair[::-1])
    assert (one.precision, one.recall) == pytest.approx((other.recall, other.precision))
    assert variation(*pair).split == pytest.approx(variation(*pair[::-1]).merge, abs=1e-9)


def test_huge_object_numbers() -> None:
    truth = np.array([2**62, 2**62, 5, 5], np.uint64)
    assert adapted_rand(truth, np.array([2**63, 2**63, 1, 1], np.uint64)).error == 0


def test_refused() -> None:
    with pytest.raises(ShapeError, match="differ"):
        adapted_rand(np.ones(3, int), np.ones(4, int))
    with pytest.raises(ShapeError, match="no labelled voxel"):
        variation(np.zeros(3, int), np.ones(3, int))


def test_splits_and_merges_of_each_object() -> None:
    """Objects of 100 voxels: one is cut in two and a sliver; two are one, to which another has lost a few voxels."""
    truth = np.repeat([1, 2, 3, 4], 100)
    found = np.concatenate([np.repeat([1, 2, 3], [60, 36, 4]), np.full(200, 5), np.full(100, 6)])
    found[300:304] = 5
    splits, merges = splits_and_merges(contingency(truth, found))
    assert splits.tolist() == [1, 0, 0, 0]
    assert merges.tolist() == [0, 1, 1, 0]
    found[304:312] = 5  # now 12 of 212
    splits, merges = splits_and_merges(contingency(truth, found))
    assert splits.tolist() == [1, 0, 0, 1]
    assert merges.tolist() == [0, 2, 2, 2]


def test_voxels_without_an_object_split_none() -> None:
    """Each of them is more than a twentieth of a small object."""
    truth, found = np.repeat([1, 2], 6), np.repeat([3, 0, 4, 0, 5], [4, 2, 1, 2, 3])
    splits, merges = splits_and_merges(contingency(truth, found))
    assert splits.tolist() == [0, 1]
    assert merges.tolist() == [0, 0]
