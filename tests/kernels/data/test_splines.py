"""Cubic B-splines against SciPy's in float64."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import map_coordinates, spline_filter1d
from znnpy_kernels.data.splines import ROOM, spline_coefficients, spline_values
from znnpy_kernels.machine.guards import address

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
    spline_coefficients.run(found, *shape, flat, np.empty(shape[2] + ROOM, np.float32))
    wanted = filtered(voxels(shape), (1, 2) if flat else (0, 1, 2))
    np.testing.assert_allclose(found, wanted, atol=1e-6 * max(1, abs(wanted).max()))


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("lower", [(0, 0, 0), (-7, 1 << 20, -3)])
def test_values_are_those_of_scipy(flat: bool, lower: tuple[int, int, int]) -> None:
    shape, random = (9, 17, 13), np.random.default_rng(1)
    values = voxels(shape)
    inside = np.stack([random.uniform(1, n - 2.001, 200) for n in shape])
    inside[:, :10] = np.floor(inside[:, :10])
    if flat:
        inside[0] = random.integers(0, shape[0], 200)
    coefficients = filtered(values, (1, 2) if flat else (0, 1, 2)).astype(np.float32)
    found = np.empty(200, np.float32)
    places = np.ascontiguousarray(inside + np.array(lower)[:, None])
    spline_values.run(
        coefficients, *shape[1:], *lower, places, 200, 9999, 9999, 1, 1, 200, found, flat
    )
    wanted = map_coordinates(values.astype(np.float64), inside, order=3, mode="mirror")
    np.testing.assert_allclose(found, wanted, atol=3e-6)
    np.testing.assert_allclose(found[:10], values[*inside[:, :10].astype(int)], atol=3e-6)


def test_places_may_be_apart_and_sections_alike() -> None:
    """Some rows and columns of some sections; and one section's places for several planes."""
    shape, random = (6, 17, 13), np.random.default_rng(2)
    values = voxels(shape)
    coefficients = filtered(values, (1, 2)).astype(np.float32)
    places = np.stack([random.uniform(1, n - 2.001, (4, 5, 9)) for n in shape])
    places[0] = np.arange(4)[:, None, None] + 1
    asked = places[:, 1:3, 2:5, 1:8]
    found = np.empty(asked.shape[1:], np.float32)
    begin = places[0, 1:, 2:, 1:]
    first = address(places) + int(begin.ctypes.data - places.ctypes.data)
    spline_values.run(
        coefficients, *shape[1:], 0, 0, 0, first, 4 * 5 * 9, 5 * 9, 9, *found.shape, found, True
    )
    exact = np.stack(
        [
            map_coordinates(values[z].astype(np.float64), at, order=3, mode="mirror")
            for z, at in zip((2, 3), asked[1:].swapaxes(0, 1), strict=True)
        ]
    )
    np.testing.assert_allclose(found, exact, atol=3e-6)
    spline_values.run(
        coefficients, *shape[1:], 0, 0, 0, first, 4 * 5 * 9, 0, 9, *found.shape, found, True
    )
    exact[1] = map_coordinates(values[3].astype(np.float64), asked[1:, 0], order=3, mode="mirror")
    np.testing.assert_allclose(found, exact, atol=3e-6)
