"""Places of warped voxels against SciPy's splines; nearest voxels whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.interpolate import BSpline
from znnpy_kernels.data.warping import (
    NUMBERS,
    nearest_room,
    nearest_voxels,
    places_room,
    warped_places,
)
from znnpy_kernels.simd.lanes import LANES

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("bent", [False, True])
def test_places_are_moved_by_a_matrix_and_by_splines(axis: int, bent: bool) -> None:
    rows, columns, line, counts = 5, 37, 48, (3, 4, 5)
    begins = np.array([[1e6, -7.0, 3.0], [1e6 + 1, -7.0, 3.0], [1e6 + 2, -4.0, 9.0]])
    matrix, centre = RANDOM.standard_normal((3, 3)), np.array([1e6, 2.0, 11.0])
    base, spacing = np.array([1e6, -5.0, 4.0]), np.array([3.0, 8.0, 11.0])
    origin = begins[0] - spacing
    control = RANDOM.standard_normal((3, *counts))
    numbers = np.concatenate((matrix.ravel(), centre, base, origin, spacing))
    assert len(numbers) == NUMBERS
    found = np.zeros((3 - axis, 3, rows, line), np.float32)
    span = np.zeros((2, 3), np.float32)
    warped_places.run(
        found, 3 * rows * line, line, begins, 3, rows, columns, numbers, control if bent else 0, *counts, axis, span,
        np.empty(places_room(counts, line, columns), np.uint8),
    )  # fmt: skip
    basis = BSpline.basis_element([-2, -1, 0, 1, 2], extrapolate=False)
    for section, begin in enumerate(begins):
        at = [begin[0:1], begin[1] + np.arange(rows), begin[2] + np.arange(columns)]
        grid = np.stack(np.meshgrid(*at, indexing="ij"))[:, 0]
        wanted = np.einsum("ab,byx->ayx", matrix, grid - centre[:, None, None])
        wanted += (centre - base)[:, None, None]
        if bent:
            parts = []
            for places, first, step, n in zip(at, origin, spacing, counts, strict=True):
                # The last points go on.
                every = np.nan_to_num(
                    basis((places - first)[:, None] / step - np.arange(-9, n + 9))
                )
                inner = every[:, 9 : n + 9].copy()
                inner[:, 0] += every[:, :9].sum(1)
                inner[:, -1] += every[:, n + 9 :].sum(1)
                parts.append(inner)
            wanted += np.einsum("abcd,zb,yc,xd->ayx", control, *parts)
        np.testing.assert_allclose(found[:, section, :, :columns], wanted[axis:], atol=2e-5)
    own = found[..., :columns].reshape(3 - axis, -1)
    np.testing.assert_array_equal(span[0, axis:], own.min(1))
    np.testing.assert_array_equal(span[1, axis:], own.max(1))


@pytest.mark.parametrize("kind", ["u1", "i2", "u4", "i8"])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_nearest_voxels_are_copied_whole(kind: str, axis: int) -> None:
    channels, depth, height, width = 2, 7, 6, 9
    source = RANDOM.integers(-(2**62), 2**62, (channels, depth, height, width)).astype(kind)
    line, rows, ends = 32, 4, np.array([1, 4, 5])
    padded = np.full((3 - axis) * 3 * rows * line + LANES, np.nan, np.float32)
    places = padded[:-LANES].reshape(3 - axis, 3, rows, line)
    shift = np.array([2, -3, 1], np.float32)
    for here, n, by in zip(places, (depth, height, width)[axis:], shift[axis:], strict=True):
        here[...] = RANDOM.uniform(-0.5, n - 0.501, here.shape) - by
        here[:, :, 5:8] = np.array([0.5, 1.49, 3]) - by
        here[0, 0, 8] = np.nextafter(np.float32(n - 0.5 - by), np.float32(-1000))
    first, last, top, left, columns = 0, 5, 1, 3, 21
    found = np.empty((channels, last - first, 2, columns), kind)
    nearest_voxels.run(
        found, source, source.itemsize, channels, depth, height, width, padded, 3 * rows * line, axis, line, rows, ends,
        2, -3, 1, first, last, top, 2, left, columns, np.empty(nearest_room(columns), np.uint8),
    )  # fmt: skip
    number: Any = np.searchsorted(ends, np.arange(first, last), side="right")
    read = places[:, number, top : top + 2, left : left + columns].astype(np.float64)
    index = np.floor(read + shift[axis:].reshape(-1, 1, 1, 1) + 0.5).astype(int)
    if axis:
        sections = np.broadcast_to(np.arange(first, last)[:, None, None] + 2, index.shape[1:])
        index = np.concatenate([sections[None], index])
    np.testing.assert_array_equal(found, source[:, *index])


def test_the_last_voxel_is_nearest_where_a_sum_rounds_up() -> None:
    """Just before 10.5 is 10.5 in float32, whose nearest voxel would be the one behind the last."""
    source, line = np.arange(11, dtype=np.int64), 16
    places = np.zeros((2, 1, 1, line), np.float32)
    places[1] = np.nextafter(np.float32(0.5), np.float32(0))
    padded = np.concatenate((places.ravel(), np.zeros(LANES, np.float32)))
    found = np.empty((1, 1, 1, 3), np.int64)
    nearest_voxels.run(
        found, source, 8, 1, 1, 1, 11, padded, line, 1, line, 1, np.array([1]), 0, 0, 10, 0, 1, 0, 1, 0, 3,
        np.empty(nearest_room(3), np.uint8),
    )  # fmt: skip
    assert found.ravel().tolist() == [10, 10, 10]
