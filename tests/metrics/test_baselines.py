"""The baselines find what they should."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from znnpy.data.opening import open_volume
from znnpy.data.sampling.class_weights import count_patch, rebalance
from znnpy.data.sampling.targets import BoundaryTarget
from znnpy.errors import VolumeError
from znnpy.metrics import average_precision, fit_threshold, mean_prediction, voxel_error

SAMPLE = Path(__file__).parents[2] / "volumes" / "fibsem"
VOXELS = st.lists(
    st.tuples(st.integers(0, 5), st.booleans(), st.sampled_from([0.0, 1.0, 3.0])),
    min_size=1,
    max_size=20,
)


def test_mean_by_weight() -> None:
    target = np.arange(12).reshape(2, 1, 2, 3)
    weight = np.array([1, 1, 0, 0, 0, 2]).reshape(1, 1, 2, 3).repeat(2, 0)
    assert mean_prediction(target).ravel().tolist() == [2.5, 8.5]
    assert mean_prediction(target, weight).ravel().tolist() == [11 / 4, 35 / 4]
    assert mean_prediction(target).shape == (2, 1, 1, 1)
    with pytest.raises(VolumeError, match="no mean"):
        mean_prediction(target, weight * 0)


@given(VOXELS)
def test_no_other_threshold_is_better(voxels: list[tuple[int, bool, float]]) -> None:
    raw, target, weight = (np.array(column, np.float64) for column in zip(*voxels, strict=True))
    if not weight.any():
        return
    found = fit_threshold(raw, target, weight)
    error = voxel_error(found.predict(raw), target, weight)
    for level in set(raw):
        for bright in (True, False):
            other = voxel_error(((raw > level) == bright).astype(float), target, weight)
            assert error <= other + 1e-12


def test_polarity() -> None:
    raw, target = np.array([10, 20, 30, 40]), np.array([1, 1, 0, 0])
    found = fit_threshold(raw, target)
    assert (found.threshold, found.bright) == (20, False)
    assert found.predict(raw).tolist() == [1, 1, 0, 0]
    assert average_precision(found.score(raw), target) == 1
    found = fit_threshold(raw, 1 - target)
    assert (found.threshold, found.bright) == (20, True)
    assert found.predict(raw).tolist() == [0, 0, 1, 1]


def test_sample_membranes_are_dark() -> None:
    with (
        open_volume(SAMPLE / "train-image.h5") as image,
        open_volume(SAMPLE / "train-gt.lzf.h5", role="labels") as labels,
    ):
        raw = image.read_all()
        target, weight = BoundaryTarget().compute(
            labels.read_all(), np.ones(image.extent, np.bool_)
        )
    balanced = rebalance(target, weight, count_patch(target, weight))
    found = fit_threshold(raw, target, balanced)
    assert not found.bright
    assert voxel_error(found.predict(raw), target, balanced) < 0.25
    assert average_precision(found.score(raw), target) > 0.5
