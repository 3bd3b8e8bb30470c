"""Cubic B-splines between voxels: their coefficients, and values at any places (Unser 1999)."""

from __future__ import annotations

from math import floor
from typing import Any

from numba import float32, int64, types

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
WIDE = 12  # neighbours on either side whose weighed sum is a coefficient, to 2e-7
ROOM = 2 * WIDE
"""float32 beside a row that it is filtered in."""
_W = [3**0.5 * (3**0.5 - 2) ** k for k in range(WIDE + 1)]
W0, W1, W2, W3, W4, W5, W6, W7, W8, W9, W10, W11, W12 = (float32(it) for it in _W)


@part
def _mirrored(index: int, count: int) -> int:
    """Return the voxel of a line of at least two that an index beyond it stands for."""
    index = index % (2 * (count - 1))
    return min(index, 2 * (count - 1) - index)


@part
def _filtered(values: Any, first: int, count: int, step: int, width: int) -> None:
    """Turn `width` lines, side by side, of `count` values `step` apart into coefficients, by GAIN too small."""
    if count < 2:
        return
    # A line begins as if it went on mirrored for ever; how it ends there has a closed form, below.
    own, factor = float32(1), float32(1)
    for k in range(1, REACH):
        factor *= POLE
        if _mirrored(k, count) == 0:
            own += factor
    for x in range(width):
        values[first + x] *= own
    factor = float32(1)
    for k in range(1, REACH):
        factor *= POLE
        other = _mirrored(k, count) * step
        if other != 0:
            for x in range(first, first + width):
                values[x] += factor * values[x + other]
    for i in range(1, count):
        here = first + i * step
        for x in range(width):
            values[here + x] += POLE * values[here + x - step]
    final = first + (count - 1) * step
    for x in range(width):
        place = final + x
        values[place] = LAST * (values[place] + POLE * values[place - step])
    for i in range(count - 2, -1, -1):
        here = first + i * step
        for x in range(width):
            place = here + x
            values[place] = POLE * (values[place + step] - values[place])


@part
def _row(values: Any, line: Any, width: int, gain: float) -> None:
    """Turn a row into coefficients times a number: by sums, which do not wait for each other as a recursion does."""
    if width == 1:
        values[0] *= gain
        return
    for x in range(width):
        line[WIDE + x] = values[x]
    last = width - 1
    for k in range(1, WIDE + 1):
        # Once, but of rows that are shorter: divisions would take as long as all sums.
        line[WIDE - k] = values[k if k < width else _mirrored(k, width)]
        line[WIDE + last + k] = values[last - k if k < width else _mirrored(last + k, width)]
    for x in range(width):
        i = x + WIDE
        near = W0 * line[i] + W1 * (line[i - 1] + line[i + 1]) + W2 * (line[i - 2] + line[i + 2])
        near += W3 * (line[i - 3] + line[i + 3]) + W4 * (line[i - 4] + line[i + 4])
        far = W5 * (line[i - 5] + line[i + 5]) + W6 * (line[i - 6] + line[i + 6])
        far += W7 * (line[i - 7] + line[i + 7]) + W8 * (line[i - 8] + line[i + 8])
        least = W9 * (line[i - 9] + line[i + 9]) + W10 * (line[i - 10] + line[i + 10])
        least += W11 * (line[i - 11] + line[i + 11]) + W12 * (line[i - 12] + line[i + 12])
        values[x] = gain * (near + (far + least))


@native("void(int64, int64, int64, int64, int64, int64)")
def spline_coefficients(
    target: int, depth: int, height: int, width: int, flat: int, room: int
) -> None:
    """Turn voxels, float32 (depth, height, width), into coefficients of cubic B-splines; beyond, they are mirrored.

    `flat`: along y and x alone. `room`: width and ROOM float32.
    """
    values = floats(target)
    plane = height * width
    gain = GAIN if height > 1 else float32(1)
    if flat == 0 and depth > 1:
        gain *= GAIN
    for row in range(depth * height):
        _row(floats(target + 4 * row * width), floats(room), width, gain)
    for z in range(depth):
        _filtered(values, z * plane, height, width, width)
    if flat == 0:
        for y in range(height):
            # Row by row: all that is filtered together stays in the cache.
            _filtered(values, y * width, depth, plane, width)


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


@part
def _value(
    here: int, row: int, plane: int, flat: int, along_z: Any, along_y: Any, along_x: Any
) -> Any:
    """Return the value among the coefficients that begin at an address, by weights along each axis."""
    if flat != 0:
        total = _plane(here, row, along_y)
    else:
        a, b, c, d = along_z
        total = quad_sum(
            quad_product(_plane(here - plane, row, along_y), a),
            quad_product(_plane(here, row, along_y), b),
        )
        more = quad_sum(
            quad_product(_plane(here + plane, row, along_y), c),
            quad_product(_plane(here + 2 * plane, row, along_y), d),
        )
        total = quad_sum(total, more)
    one, two, three, four = quad_lanes(quad_product(total, along_x))
    return (one + two) + (three + four)


@native(types.void(*[types.int64] * 15))
def spline_values(
    source: int,
    height: int,
    width: int,
    z: int,
    y: int,
    x: int,
    places: int,
    axis: int,
    apart: int,
    line: int,
    depth: int,
    rows: int,
    columns: int,
    target: int,
    flat: int,
) -> None:
    """Interpolate at places into float32 (depth, rows, columns).

    `source`: coefficients, float32 (z, height, width), the first at z, y, x; two are needed before and behind each
    place. `places`: float64, along z, y and x, `axis` of them each; sections are `apart`, rows `line` after each other.
    `flat`: coefficients are those along y and x, and all places lie in planes. `apart` 0: those are of the first
    section, and each is read in the next plane; flat ones alone.
    """
    row, plane = 4 * width, 4 * height * width
    sections, alike = (1, depth) if apart == 0 else (depth, 1)
    for section in range(sections):
        for i in range(rows):
            at = doubles(places + 8 * (section * apart + i * line))
            for j in range(columns):
                deep, down, across = at[j], at[axis + j], at[2 * axis + j]
                front, top, left = int64(floor(deep)), int64(floor(down)), int64(floor(across))
                along_y, along_x = quad_spread(_weights(down, top)), _weights(across, left)
                along_z = along_y if flat != 0 else quad_spread(_weights(deep, front))
                here = source + (front - z) * plane + (top - y - 1) * row + 4 * (left - x - 1)
                for k in range(alike):
                    found = floats(target + 4 * (((section + k) * rows + i) * columns + j))
                    found[0] = _value(here + k * plane, row, plane, flat, along_z, along_y, along_x)
