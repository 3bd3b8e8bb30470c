"""Transformed filters, bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from blocked_images import normal
from correlations import FLAT
from filter_points import exchanged_points_of, points_of
from znnpy_kernels.direct.packed_filters import pack_filters
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd.line_transforms import TARGET_SCALES, filter_matrix


def along(axis: int, taps: Any) -> Any:
    """An axis of taps to points: sums in float64, in the order of the taps; one tap is one point."""
    if taps.shape[axis] == 1:
        return taps
    low, middle, high = (np.take(taps, tap, axis) for tap in range(3))
    matrix = TARGET_SCALES[:, None] * filter_matrix()
    return np.stack([a * low + b * middle + c * high for a, b, c in matrix], axis)


def expected(filters: Any) -> Any:
    """Points [z][x][y] of all filters, as `pack_filters` orders these: [group][input][lane]."""
    points = along(2, along(3, along(4, filters.astype(np.float64)))).astype(np.float32)
    ordered = np.moveaxis(points, (2, 4, 3), (0, 1, 2)).reshape(-1, *filters.shape[:2])
    return np.concatenate([pack_filters(each[..., None, None, None]) for each in ordered])


SIZES = [
    (1, 1),
    (5, 3),
    (LANES, LANES),
    (LANES + 3, 2 * LANES),
    (37, 50),
    (2 * LANES + 1, 3 * LANES),
]


@pytest.mark.quick(7)
@pytest.mark.parametrize("taps", [(3, 3, 3), *FLAT])
@pytest.mark.parametrize(("outputs", "inputs"), SIZES)
def test_points_are_sums_in_float64_rounded_once(outputs: int, inputs: int, taps: Any) -> None:
    filters = normal(1, outputs, inputs, *taps)
    assert np.array_equal(points_of(filters), expected(filters))


@pytest.mark.quick(7)
@pytest.mark.parametrize("taps", [(3, 3, 3), *FLAT])
@pytest.mark.parametrize(("outputs", "inputs"), SIZES)
def test_those_of_the_data_gradient_are_flipped_and_exchanged(
    outputs: int, inputs: int, taps: Any
) -> None:
    filters = normal(1, outputs, inputs, *taps)
    other = filters[:, :, ::-1, ::-1, ::-1].swapaxes(0, 1)
    assert np.array_equal(exchanged_points_of(filters), expected(other))
