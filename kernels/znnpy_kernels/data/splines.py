"""Cubic B-splines between voxels: their coefficients, and values at any places (Unser 1999)."""

from __future__ import annotations

from typing import Any

from numba import int64, types

from znnpy_kernels.data.warping import floored
from znnpy_kernels.machine.inlining import inlined, part
from znnpy_kernels.machine.memory import floats, ints, longs
from znnpy_kernels.machine.native import native
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.quads import (
    load_quad,
    quad_fused,
    quad_lanes,
    quad_product,
    quad_splat,
    quad_turned,
    store_quad,
)
from znnpy_kernels.simd.transpose import load_tile, scratch_tile, store_tile, transpose_tile
from znnpy_kernels.simd.vectors import (
    below,
    fma,
    from_bits,
    load,
    load_masked,
    splat,
    splat_int,
    store,
    store_masked,
)

POLE = 3**0.5 - 2
GAIN = 6.0  # (1 - POLE) (1 - 1 / POLE)
LAST = POLE / (POLE * POLE - 1)
REACH = 14  # voxels; beyond, powers of POLE are below what float32 has beside 1
BLOCK = 12 * VECTOR_BYTES
"""Bytes of the weights of LANES voxels: four vectors along y, x and z each."""


def coefficients_room(width: int) -> int:
    """Return the bytes of room that `spline_coefficients` needs."""
    return 2 * VECTOR_BYTES * (width + LANES)


def values_room(columns: int) -> int:
    """Return the bytes of room that `spline_values` needs."""
    blocks = -(-columns // LANES)
    return blocks * (BLOCK + VECTOR_BYTES) + VECTOR_BYTES


@part
def _mirrored(index: int, count: int) -> int:
    """Return the voxel of a line of at least two that an index beyond it stands for."""
    index = index % (2 * (count - 1))
    return min(index, 2 * (count - 1) - index)


@inlined
def _strips(first: int, count: int, step: int, mask: Any, other: Any) -> None:
    """Turn lines side by side, two vectors of them, of `count` values `step` bytes apart into coefficients.

    Two at once, as each value waits for the one before.
    """
    pole, gain = splat(POLE), splat(GAIN)
    one = two = splat(0.0)
    factor = GAIN
    for k in range(REACH):
        # A line begins as if it went on mirrored for ever; how it ends there has a closed form, below.
        here = first + step * (k if k < count else _mirrored(k, count))
        one = fma(splat(factor), load_masked(here, mask), one)
        two = fma(splat(factor), load_masked(here + VECTOR_BYTES, other), two)
        factor *= POLE
    before, behind = one, two
    store_masked(first, mask, one)
    store_masked(first + VECTOR_BYTES, other, two)
    for i in range(1, count):
        here = first + step * i
        before, behind = one, two
        one = fma(pole, one, gain * load_masked(here, mask))
        two = fma(pole, two, gain * load_masked(here + VECTOR_BYTES, other))
        store_masked(here, mask, one)
        store_masked(here + VECTOR_BYTES, other, two)
    final = first + step * (count - 1)
    one, two = splat(LAST) * fma(pole, before, one), splat(LAST) * fma(pole, behind, two)
    store_masked(final, mask, one)
    store_masked(final + VECTOR_BYTES, other, two)
    for i in range(count - 2, -1, -1):
        here = first + step * i
        one = pole * (one - load_masked(here, mask))
        two = pole * (two - load_masked(here + VECTOR_BYTES, other))
        store_masked(here, mask, one)
        store_masked(here + VECTOR_BYTES, other, two)


@part
def _filtered(first: int, count: int, step: int, width: int) -> None:
    """Turn `width` lines, side by side, of `count` values `step` bytes apart into coefficients."""
    if count < 2:
        return
    full = below(LANES)
    for x in range(0, width - 2 * LANES + 1, 2 * LANES):
        _strips(first + 4 * x, count, step, full, full)
    rest = width % (2 * LANES)
    if rest > 0:
        here = first + 4 * (width - rest)
        _strips(here, count, step, below(rest), below(max(0, rest - LANES)))


@part
def _turned(room: int, source: int, width: int, rows: int) -> None:
    """Write rows as columns of `room`, 2 LANES float32 wide."""
    tile = scratch_tile()
    for x in range(0, width, LANES):
        here, there = source + 4 * x, room + 2 * VECTOR_BYTES * x
        if rows >= LANES and width - x >= LANES:
            transpose_tile(here, 4 * width, there, 2 * VECTOR_BYTES)
        else:
            load_tile(here, 4 * width, rows, width - x, tile)
            transpose_tile(tile, VECTOR_BYTES, there, 2 * VECTOR_BYTES)


@part
def _turned_back(target: int, room: int, width: int, rows: int) -> None:
    tile = scratch_tile()
    for x in range(0, width, LANES):
        here, there = target + 4 * x, room + 2 * VECTOR_BYTES * x
        if rows >= LANES and width - x >= LANES:
            transpose_tile(there, 2 * VECTOR_BYTES, here, 4 * width)
        else:
            transpose_tile(there, 2 * VECTOR_BYTES, tile, VECTOR_BYTES)
            store_tile(tile, here, 4 * width, rows, width - x)


@native("void(int64, int64, int64, int64, int64, int64)")
def spline_coefficients(
    target: int, depth: int, height: int, width: int, flat: int, room: int
) -> None:
    """Turn voxels, float32 (depth, height, width), into coefficients of cubic B-splines; beyond, they are mirrored.

    `flat`: along y and x alone. `room`: `coefficients_room` bytes.
    """
    row = 4 * width
    full, lines = below(LANES), depth * height
    if width > 1:
        # Turned, so that a vector's lanes do not wait for each other.
        for line in range(0, lines, 2 * LANES):
            first, rows = target + line * row, lines - line
            _turned(room, first, width, min(LANES, rows))
            _turned(room + VECTOR_BYTES, first + LANES * row, width, min(LANES, rows - LANES))
            _strips(room, width, 2 * VECTOR_BYTES, full, full)
            _turned_back(first, room, width, min(LANES, rows))
            _turned_back(first + LANES * row, room + VECTOR_BYTES, width, min(LANES, rows - LANES))
    for z in range(depth):
        _filtered(target + z * height * row, height, row, width)
    if flat == 0:
        for y in range(height):
            # Row by row: all that is filtered together stays in the cache.
            _filtered(target + y * row, depth, height * row, width)


@inlined
def _weighed(target: int, place: int, by: float) -> Any:
    """Write the weights of points -1, 0, 1, 2 beside some places, four vectors, and return point 0 of each."""
    at = load(place) + splat(by)
    first, number = floored(at)
    sixth, half, most = splat(1 / 6), splat(0.5), splat(2 / 3)
    t = at - first
    u = splat(1.0) - t
    square, other = t * t, u * u
    store(target, other * u * sixth)
    store(target + VECTOR_BYTES, fma(fma(half, t, splat(-1.0)), square, most))
    store(target + 2 * VECTOR_BYTES, fma(fma(half, u, splat(-1.0)), other, most))
    store(target + 3 * VECTOR_BYTES, square * t * sixth)
    return number


@part
def _weights(
    target: int, offsets: int, place: int, apart: int, axis: int, columns: int, by: Any, height: int, width: int
) -> None:  # fmt: skip
    """Write the weights of a row of places, and the numbers of the first coefficients, int32."""
    for i in range(0, columns, LANES):
        at, block = place + 4 * i, target + BLOCK * (i // LANES)
        found = splat_int(-1 - width)
        if axis == 0:
            found = found + _weighed(block + 8 * VECTOR_BYTES, at, by[0]) * splat_int(
                height * width
            )
            at += 4 * apart
        found = found + _weighed(block, at, by[1]) * splat_int(width)
        found = found + _weighed(block + 4 * VECTOR_BYTES, at + 4 * apart, by[2])
        store(offsets + 4 * i, from_bits(found))


@inlined
def _plane(source: int, row: int, weights: int) -> Any:
    """Return four sums over y of coefficients: rows `row` bytes apart, the first of which lies at an address."""
    weight = floats(weights)
    found = quad_product(load_quad(source), quad_splat(weight[0]))
    found = quad_fused(load_quad(source + row), quad_splat(weight[LANES]), found)
    found = quad_fused(load_quad(source + 2 * row), quad_splat(weight[2 * LANES]), found)
    return quad_fused(load_quad(source + 3 * row), quad_splat(weight[3 * LANES]), found)


@inlined
def _space(source: int, row: int, plane: int, weights: int) -> Any:
    """Return four sums over z and y of coefficients."""
    along_z = floats(weights + 8 * VECTOR_BYTES)
    found = quad_product(_plane(source - plane, row, weights), quad_splat(along_z[0]))
    own = _plane(source, row, weights)
    found = quad_fused(own, quad_splat(along_z[LANES]), found)
    own = _plane(source + plane, row, weights)
    found = quad_fused(own, quad_splat(along_z[2 * LANES]), found)
    own = _plane(source + 2 * plane, row, weights)
    return quad_fused(own, quad_splat(along_z[3 * LANES]), found)


@inlined
def _across(sums: Any, weights: int) -> Any:
    """Return four values, by sums of four neighbours along x each."""
    one, two, three, four = quad_turned(sums[0], sums[1], sums[2], sums[3])
    along_x = weights + 4 * VECTOR_BYTES
    found = quad_product(one, load_quad(along_x))
    found = quad_fused(two, load_quad(along_x + VECTOR_BYTES), found)
    found = quad_fused(three, load_quad(along_x + 2 * VECTOR_BYTES), found)
    return quad_fused(four, load_quad(along_x + 3 * VECTOR_BYTES), found)


@inlined
def _four(source: int, row: int, plane: int, flat: int, offsets: Any, i: int, weights: int) -> Any:
    """Return the values of four voxels side by side, from number i on."""
    a, b = source + 4 * offsets[i], source + 4 * offsets[i + 1]
    c, d = source + 4 * offsets[i + 2], source + 4 * offsets[i + 3]
    if flat != 0:
        sums = (
            _plane(a, row, weights), _plane(b, row, weights + 4), _plane(c, row, weights + 8),
            _plane(d, row, weights + 12),
        )  # fmt: skip
    else:
        sums = (
            _space(a, row, plane, weights), _space(b, row, plane, weights + 4), _space(c, row, plane, weights + 8),
            _space(d, row, plane, weights + 12),
        )  # fmt: skip
    return _across(sums, weights)


@part
def _row(
    target: int, source: int, row: int, plane: int, flat: int, offsets: int, weights: int,
    columns: int,
) -> None:  # fmt: skip
    """Write the values of a row."""
    number = ints(offsets)
    for i in range(0, columns, 4):
        here = weights + BLOCK * (i // LANES) + 4 * (i % LANES)
        found = _four(source, row, plane, flat, number, i, here)
        if columns - i >= 4:
            store_quad(target + 4 * i, found)
        else:
            four, written = quad_lanes(found), floats(target + 4 * i)
            for k in range(columns - i):
                written[k] = four[k]


@native(types.void(*[types.int64] * 20))
def spline_values(
    target: int,
    source: int,
    height: int,
    width: int,
    places: int,
    apart: int,
    axis: int,
    line: int,
    of_rows: int,
    ends: int,
    deep: int,
    down: int,
    across: int,
    first: int,
    last: int,
    top: int,
    rows: int,
    left: int,
    columns: int,
    room: int,
) -> None:
    """Interpolate at places into float32 (last - first, rows, columns), by coefficients (z, height, width).

    Two coefficients are needed before and behind each place. Places and what they are told from are as in
    `warping.nearest_voxels`; with `axis` 1, coefficients are those along y and x alone. `room`: `values_room` bytes.
    """
    end, by = longs(ends), (float(deep), float(down), float(across))
    row, plane, flat = 4 * width, 4 * height * width, axis
    blocks = (columns + LANES - 1) // LANES
    offsets = room + BLOCK * blocks
    number = ints(offsets)
    begin, section = int64(0), int64(0)
    while begin < last:
        stop = min(last, end[section])
        begin = max(begin, first)
        if begin < stop:
            for j in range(rows):
                at = places + 4 * ((section * of_rows + top + j) * line + left)
                _weights(room, offsets, at, apart, axis, columns, by, height, width)
                for i in range(columns, columns + 3):
                    number[i] = number[columns - 1]
                for own in range(begin, stop):
                    here = source + (own + deep) * plane if flat != 0 else source
                    found = target + 4 * ((own - first) * rows + j) * columns
                    _row(found, here, row, plane, flat, offsets, room, columns)
        begin = max(begin, end[section])
        section += 1
