"""Objects from boundary maps and affinities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import ndimage
from skimage.segmentation import expand_labels

from znnpy.data.sampling.targets import AffinityTarget, BoundaryTarget
from znnpy.errors import ShapeError
from znnpy.metrics import adapted_rand, from_affinity, from_boundary

SHAPES = st.tuples(*[st.integers(1, 5)] * 3)
LABELS = SHAPES.flatmap(lambda s: arrays(np.int64, (1, *s), elements=st.integers(0, 3)))


def components(labels: np.ndarray) -> np.ndarray:
    """Connected components over faces of each label, one label at a time."""
    out, number = np.zeros(labels.shape, int), 0
    for value in np.unique(labels[labels > 0]):
        found, count = ndimage.label(labels == value)
        out[found > 0] = found[found > 0] + number
        number += count
    return out


def same_objects(one: np.ndarray, other: np.ndarray) -> bool:
    pairs = np.unique(np.stack([one.ravel(), other.ravel()]), axis=1)
    return pairs.shape[1] == len(np.unique(one)) == len(np.unique(other))


@given(LABELS, st.booleans())
def test_exact_affinities_give_the_objects_back(labels: np.ndarray, forward: bool) -> None:
    sign = 1 if forward else -1
    offsets = ((0, 0, sign), (0, sign, 0), (sign, 0, 0), (0, -2, 3))
    value, _ = AffinityTarget(offsets).compute(labels, np.ones(labels.shape[1:], np.bool_))
    expected = components(labels[0])
    found = from_affinity(value, offsets=offsets, min_size=0)
    alone = np.bincount(expected.ravel())[expected] == 1
    unassigned = expected == 0
    expected[unassigned] = expected.max() + 1 + np.arange(np.count_nonzero(unassigned))
    assert same_objects(found, expected)
    dropped = from_affinity(value, offsets=offsets)
    assert np.array_equal(dropped == 0, alone | unassigned)


def test_boundary_map_gives_the_objects_back() -> None:
    labels = np.ones((6, 9, 9), np.int64)
    labels[:, 5:] = 2
    labels[:, 4] = 0
    value, _ = BoundaryTarget(0).compute(labels[None], np.ones(labels.shape, np.bool_))
    for prediction in (value, value[0]):
        found = from_boundary(prediction)
        assert same_objects(found, labels)
        assert np.array_equal(found == 0, labels == 0)
    grown = from_boundary(value, grow=1)
    assert grown.min() > 0
    assert adapted_rand(labels, grown).error == 0


def test_threshold_and_small_objects() -> None:
    boundary = np.array([0.1, 0.1, 0.6, 0.1, 0.8, 0.1, 0.1, 0.1]).reshape(1, 1, 8)
    assert from_boundary(boundary)[0, 0].tolist() == [1, 1, 0, 2, 0, 3, 3, 3]
    assert from_boundary(boundary, 0.7)[0, 0].tolist() == [1, 1, 1, 1, 0, 2, 2, 2]
    assert (from_boundary(boundary, min_size=2)[0, 0] > 0).tolist() == [1, 1, 0, 0, 0, 1, 1, 1]
    assert (from_boundary(boundary, min_size=9) == 0).all()


def test_refused() -> None:
    with pytest.raises(ShapeError, match="boundary map"):
        from_boundary(np.zeros((2, 3, 4, 5)))
    with pytest.raises(ShapeError, match="3 offsets need"):
        from_affinity(np.zeros((2, 3, 4, 5)))
    with pytest.raises(ShapeError, match="no single step along y"):
        from_affinity(np.zeros((2, 3, 4, 5)), offsets=((1, 0, 0), (0, 2, 0)))


@pytest.mark.parametrize("distance", [1, 1.5, 3])
@pytest.mark.parametrize("share", [0.1, 0.003, 0.0])
def test_objects_grow_as_by_scikit_image(distance: float, share: float) -> None:
    inside = np.random.default_rng(3).random((12, 13, 14)) < share
    found = from_boundary(1.0 - inside, grow=distance)
    assert np.array_equal(found, expand_labels(from_boundary(1.0 - inside), distance))
