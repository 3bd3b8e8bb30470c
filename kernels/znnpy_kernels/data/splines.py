"""Cubic B-splines between voxels: their coefficients, and values at any places (Unser 1999)."""

from __future__ import annotations

from math import floor
from typing import Any

from numba import float32, int64

from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.memory import doubles, floats
from znnpy_kernels.machine.native import native
from znnpy_kernels.simd.quads import (
    load_quad,
    quad,
    quad_lanes,
    quad_product,
    quad_splat,
    quad_spread,
    quad_sum,
)

POLE = float32(3**0.5 - 2)
GAIN = float32(6)  # (1 - POLE) (1 - 1 / POLE)
LAST = float32(POLE / (POLE * POLE - 1))
REACH = 14  # voxels; beyond, powers of POLE are below what float32 has beside 1
ROWS = 16  # that are filtered along x together: one alone would wait for each of its voxels


@part
def _mirrored(index: int, count: int) -> int:
    """Return the voxel of a line of at least two that an index beyond it stands for."""
    index = index % (2 * (count - 1))
    return min(index, 2 * (count - 1) - index)


@part
def _filtered(values: Any, first: int, count: int, step: int, width: int, apart: int) -> None:
    """Turn `width` lines, each begun `apart` after the last, of `count` values `step` apart into coefficients."""
    if count < 2:
        return
    for i in range(1, count):
        for x in range(width):
            values[first + i * step + x * apart] *= GAIN
    # A line begins as if it went on mirrored for ever; how it ends there has a closed form, below.
    own, factor = float32(1), float32(1)
    for k in range(1, REACH):
        factor *= POLE
        if _mirrored(k, count) == 0:
            own += factor
    for x in range(width):
        values[first + x * apart] *= GAIN * own
    factor = float32(1)
    for k in range(1, REACH):
        factor *= POLE
        other = _mirrored(k, count) * step
        if other != 0:
            for x in range(first, first + width * apart, apart):
                values[x] += factor * values[x + other]
    for i in range(1, count):
        here = first + i * step
        for x in range(width):
            values[here + x * apart] += POLE * values[here + x * apart - step]
    final = first + (count - 1) * step
    for x in range(width):
        place = final + x * apart
        values[place] = LAST * (values[place] + POLE * values[place - step])
    for i in range(count - 2, -1, -1):
        here = first + i * step
        for x in range(width):
            place = here + x * apart
            values[place] = POLE * (values[place + step] - values[place])


@native("void(int64, int64, int64, int64, int64)")
def spline_coefficients(target: int, depth: int, height: int, width: int, flat: int) -> None:
    """Turn voxels, float32 (depth, height, width), into coefficients of cubic B-splines; beyond, they are mirrored.

    `flat`: along y and x alone.
    """
    values = floats(target)
    plane = height * width
    for row in range(0, depth * height, ROWS):
        rows = min(ROWS, depth * height - row)
        _filtered(values, row * width, width, int64(1), rows, width)
    for z in range(depth):
        _filtered(values, z * plane, height, width, width, int64(1))
    if flat == 0:
        for y in range(height):
            # Row by row: all that is filtered together stays in the cache.
            _filtered(values, y * width, depth, plane, width, int64(1))


@part
def _weights(place: float, point: int) -> Any:
    """Return the weights of points -1, 0, 1, 2 beside one at a place from there to the next, as four floats."""
    t = quad_splat(float32(place - point))
    found = quad_sum(quad(0.5, -1.0, 0.5, 0.0), quad_product(t, quad(-1 / 6, 0.5, -0.5, 1 / 6)))
    found = quad_sum(quad(-0.5, 0.0, 0.5, 0.0), quad_product(t, found))
    return quad_sum(quad(1 / 6, 2 / 3, 1 / 6, 0.0), quad_product(t, found))


@part
def _plane(source: int, row: int, weights: Any) -> Any:
    """Return four sums over y of coefficients: rows `row` bytes apart, the first of which lies at an address."""
    a, b, c, d = weights
    upper = quad_sum(quad_product(load_quad(source), a), quad_product(load_quad(source + row), b))
    lower = quad_sum(
        quad_product(load_quad(source + 2 * row), c), quad_product(load_quad(source + 3 * row), d)
    )
    return quad_sum(upper, lower)


@native("void(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def spline_values(
    source: int,
    height: int,
    width: int,
    z: int,
    y: int,
    x: int,
    places: int,
    count: int,
    target: int,
    flat: int,
) -> None:
    """Interpolate at places, float64 (3, count), into float32 (count,).

    `source`: coefficients, float32 (z, height, width), the first at z, y, x; two are needed before and behind each
    place. `flat`: they are those along y and x, and all places lie in planes.
    """
    found, at = floats(target), doubles(places)
    row, plane = 4 * width, 4 * height * width
    for voxel in range(count):
        deep, down, across = at[voxel], at[count + voxel], at[2 * count + voxel]
        front, top, left = int64(floor(deep)), int64(floor(down)), int64(floor(across))
        along_y = quad_spread(_weights(down, top))
        here = source + (front - z) * plane + (top - y - 1) * row + 4 * (left - x - 1)
        if flat != 0:
            total = _plane(here, row, along_y)
        else:
            a, b, c, d = quad_spread(_weights(deep, front))
            total = quad_sum(
                quad_product(_plane(here - plane, row, along_y), a),
                quad_product(_plane(here, row, along_y), b),
            )
            more = quad_sum(
                quad_product(_plane(here + plane, row, along_y), c),
                quad_product(_plane(here + 2 * plane, row, along_y), d),
            )
            total = quad_sum(total, more)
        one, two, three, four = quad_lanes(quad_product(total, _weights(across, left)))
        found[voxel] = (one + two) + (three + four)
