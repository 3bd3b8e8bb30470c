"""Transformed filters beside float64; those of the data gradient bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from blocked_images import normal
from correlations import FLAT
from filter_points import exchanged_points_of, points_of, without_gaps
from znnpy_kernels.direct.packed_filters import pack_filters
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd.filters import point_bytes
from znnpy_kernels.winograd.line_transforms import TARGET_SCALES, filter_matrix


def along(axis: int, taps: Any, matrix: Any) -> Any:
    """An axis of taps to points; one tap is one point."""
    if taps.shape[axis] == 1:
        return taps
    return np.moveaxis(np.tensordot(matrix, taps, (1, axis)), 0, axis)


def expected(filters: Any, matrix: Any) -> Any:
    """Points [z][x][y] of all filters, as `pack_filters` orders these: [group][input][lane]."""
    points = filters.astype(np.float64)
    for axis in (2, 3, 4):
        points = along(axis, points, matrix)
    ordered = np.moveaxis(points, (2, 4, 3), (0, 1, 2)).reshape(-1, *filters.shape[:2])
    return np.concatenate([pack_filters(each[..., None, None, None]) for each in ordered])


# The last ones have points of whole pages, which lie apart.
SIZES = [
    (1, 1),
    (5, 3),
    (LANES, LANES),
    (LANES + 3, 2 * LANES),
    (37, 50),
    (4 * LANES, 128),
    (2 * LANES + 1, 3 * LANES),
]


@pytest.mark.quick(7)
@pytest.mark.parametrize("taps", [(3, 3, 3), *FLAT])
@pytest.mark.parametrize(("outputs", "inputs"), SIZES)
def test_points_are_sums_of_taps(outputs: int, inputs: int, taps: Any) -> None:
    filters = normal(1, outputs, inputs, *taps)
    matrix = TARGET_SCALES[:, None] * filter_matrix()
    # A factor and two additions, all three rounded, along each of three axes.
    most = 9 * 2.0**-24 * expected(abs(filters), abs(matrix))
    found = without_gaps(points_of(filters), inputs, outputs)
    assert np.all(abs(found - expected(filters, matrix)) <= most)


@pytest.mark.quick(7)
@pytest.mark.parametrize("taps", [(3, 3, 3), *FLAT])
@pytest.mark.parametrize(("outputs", "inputs"), SIZES)
def test_those_of_the_data_gradient_are_flipped_and_exchanged(
    outputs: int, inputs: int, taps: Any
) -> None:
    filters = normal(1, outputs, inputs, *taps)
    other = np.ascontiguousarray(filters[:, :, ::-1, ::-1, ::-1].swapaxes(0, 1))
    found, same = (
        without_gaps(it, outputs, inputs) for it in (exchanged_points_of(filters), points_of(other))
    )
    assert np.array_equal(found, same)


@pytest.mark.parametrize("channels", [64, 128, 256, 320])
def test_points_do_not_lie_whole_pages_apart(channels: int) -> None:
    assert point_bytes(channels, channels // LANES) // 128 % 2
