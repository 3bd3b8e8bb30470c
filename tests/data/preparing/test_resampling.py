"""Resampling beside skimage's and SciPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.ndimage import map_coordinates
from skimage.transform import resize

from znnpy.config.prepare_section import ResampleSection
from znnpy.data.preparing.resampling import Resampling, labels_resampled, new_shape, used, weights

MILLIMETRES = 1e6
ALIKE = (1e6, 1e6, 1e6)


@pytest.mark.parametrize("order", [0, 1, 3])
@pytest.mark.parametrize("wanted", [(9, 20, 15), (4, 7, 30), (11, 13, 16), (1, 1, 1)])
def test_values_are_those_of_skimage(
    order: int, wanted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("znnpy.data.preparing.resampling.CHUNK", 1000)
    given = np.random.default_rng(0).standard_normal((11, 13, 16)).astype(np.float32)
    how = Resampling((11, 13, 16), wanted, order)
    found = how.applied(given)
    assert found.dtype == np.float32
    expected = resize(given.astype(float), wanted, order, mode="edge", anti_aliasing=False)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("between", [0, 1])
def test_planes_are_resampled_by_themselves(axis: int, between: int) -> None:
    shape, wanted = [8, 12, 10], [11, 7, 13]
    given = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    found = Resampling((8, 12, 10), (11, 7, 13), 3, axis, between).applied(given)
    flat = [n for index, n in enumerate(wanted) if index != axis]
    planes = [
        resize(plane.astype(float), flat, 3, mode="edge", anti_aliasing=False)
        for plane in np.moveaxis(given, axis, 0)
    ]
    stacked = np.stack(planes, axis)
    scale = shape[axis] / wanted[axis]
    places = np.indices(wanted).astype(float)
    places[axis] = scale * (places[axis] + 0.5) - 0.5
    expected = map_coordinates(stacked, places, order=between, mode="nearest")
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("before", "after", "planes", "axis"),
    [
        ((1, 1, 1), (2, 2, 2), "auto", None),
        ((4, 1, 1), (1, 1, 1), "auto", 0),
        ((3, 1, 1), (1, 1, 1), "auto", None),  # not more than three times
        ((1, 1, 1), (1, 1, 5), "auto", 2),  # of the voxels after it
        ((1, 5, 1), (9, 1, 1), "auto", 1),  # those before it count first
        ((5, 5, 1), (1, 1, 1), "auto", None),  # two axes
        ((2, 1, 1), (1, 1, 1), True, 0),
        ((1, 1, 1), (4, 1, 1), True, None),
        ((9, 1, 1), (1, 1, 1), False, None),
    ],
)
def test_which_planes(before: Any, after: Any, planes: Any, axis: int | None) -> None:
    section = ResampleSection(order=3, planes=planes)
    assert Resampling.of((9, 9, 9), (5, 5, 5), before, after, section).across == axis


def test_half_voxels_are_rounded_as_in_millimetres() -> None:
    # 0.7 / 0.8 * 36 is a little below 31.5, 700000 / 800000 * 36 is not.
    size = (0.7 * MILLIMETRES, 1 * MILLIMETRES, 1 * MILLIMETRES)
    wanted = (0.8 * MILLIMETRES, 2 * MILLIMETRES, 2 * MILLIMETRES)
    assert new_shape((36, 5, 7), size, wanted) == (31, 2, 4)


def test_the_label_with_the_largest_share_wins() -> None:
    labels = np.random.default_rng(2).integers(0, 4, (6, 9, 8)).astype(np.uint8)
    how = Resampling((6, 9, 8), (9, 5, 13), 1)
    found = labels_resampled(labels, how)
    shares = np.stack(
        [
            resize((labels == label).astype(float), (9, 5, 13), 1, mode="edge", anti_aliasing=False)
            for label in range(4)
        ]
    )
    mine = np.take_along_axis(shares, found[None].astype(np.int64), 0)[0]
    assert found.dtype == np.uint8
    np.testing.assert_allclose(mine, shares.max(axis=0), atol=1e-5)


def test_labels_that_are_equal_nearby_are_the_nearest() -> None:
    labels = np.zeros((2, 1, 1), np.uint8)
    labels[0] = 3
    # The middle one of three lies between both: SciPy rounds up there.
    assert labels_resampled(labels, Resampling((2, 1, 1), (3, 1, 1), 1)).ravel().tolist() == [
        3,
        0,
        0,
    ]


def test_rows_that_are_used() -> None:
    shares = weights(10, 20, 1)
    assert used(shares, slice(0, 1)) == (0, 1)
    assert used(shares, slice(4, 8)) == (1, 5)
    assert used(weights(10, 20, 3), slice(4, 5)) == (0, 10)  # splines are made from all


def test_nothing_changes_where_nothing_is_asked() -> None:
    given = np.ones((3, 4, 5), np.float32)
    assert Resampling((3, 4, 5), (3, 4, 5), 3).applied(given) is given
