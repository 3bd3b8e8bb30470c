"""Cubic B-splines against SciPy's in float64."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import map_coordinates, spline_filter1d
from znnpy_kernels.data.splines import (
    coefficients_room,
    spline_coefficients,
    spline_values,
    values_room,
)
from znnpy_kernels.simd.lanes import LANES

SHAPES = [(1, 1, 1), (1, 2, 3), (2, 3, 2), (3, 1, 9), (5, 4, 30), (9, 17, 33), (2, 40, 8)]


def voxels(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def filtered(values: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    found = values.astype(np.float64)
    for axis in axes:
        found = spline_filter1d(found, 3, axis, np.float64, mode="mirror")
    return found


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("flat", [False, True])
def test_coefficients_are_those_of_scipy(shape: tuple[int, ...], flat: bool) -> None:
    found = voxels(shape)
    spline_coefficients.run(found, *shape, flat, np.empty(coefficients_room(shape[2]), np.uint8))
    wanted = filtered(voxels(shape), (1, 2) if flat else (0, 1, 2))
    np.testing.assert_allclose(found, wanted, atol=1e-6 * max(1, abs(wanted).max()))


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("columns", [1, 3, 6, 16, 37])
def test_values_are_those_of_scipy(flat: bool, columns: int) -> None:
    """Of some of the sections, rows and columns that there are places of; told from another voxel than the first."""
    shape, random = (9, 17, 13), np.random.default_rng(1)
    values = voxels(shape)
    coefficients = filtered(values, (1, 2) if flat else (0, 1, 2)).astype(np.float32)
    line, ends = 48, np.array([2, 3, 6] if flat else range(1, 7))
    inside = [random.uniform(1, n - 2.001, (len(ends), 5, line)) for n in shape]
    padded = np.full(2 * len(ends) * 5 * line + LANES, np.nan, np.float32)
    if not flat:
        padded = np.full(3 * len(ends) * 5 * line + LANES, np.nan, np.float32)
    places = padded[:-LANES].reshape(-1, len(ends), 5, line)
    shift = np.array([2, -3, 5], np.float32)
    for axis, (here, there) in enumerate(zip(places[::-1], inside[::-1], strict=False)):
        here[...] = there - shift[2 - axis]
        here[:, :, :4] = np.floor(here[:, :, :4])  # some voxels as they are
    first, last, top, left = 1, 5, 1, 2
    found = np.empty((last - first, 3, columns), np.float32)
    spline_values.run(
        found, coefficients, *shape[1:], padded, len(ends) * 5 * line, int(flat), line, 5, ends, 2, -3, 5, first, last,
        top, 3, left, columns, np.empty(values_room(columns), np.uint8),
    )  # fmt: skip
    number = np.searchsorted(ends, np.arange(first, last), side="right")
    read = places[:, number, top : top + 3, left : left + columns].astype(np.float64)
    if flat:
        sections = np.broadcast_to(np.arange(first, last)[:, None, None], read.shape[1:])
        read = np.concatenate([sections[None], read])
    wanted = map_coordinates(
        values.astype(np.float64), read + shift.reshape(3, 1, 1, 1), order=3, mode="mirror"
    )
    np.testing.assert_allclose(found, wanted, atol=3e-6)
