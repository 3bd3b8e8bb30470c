"""Where the voxels of a warped patch are read, row by row, and the voxels that are nearest there.

Places are float32 (axis, section, row, line), told from a whole place near by, so that they have digits enough.
Sections read alike are one: `ends` has how many sections lie before the end of each, int64.
"""

from __future__ import annotations

from math import floor
from typing import Any

from numba import float32, int64, types

from znnpy_kernels.machine.inlining import inlined, part
from znnpy_kernels.machine.memory import bytes_, doubles, floats, ints, longs, shorts
from znnpy_kernels.machine.native import native
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vector_math import ROUND, ROUND_BITS
from znnpy_kernels.simd.vectors import (
    below,
    bits,
    fma,
    from_bits,
    int_to_float,
    lane_numbers,
    load,
    select,
    splat,
    splat_int,
    store,
)

CENTRE, BASE, ORIGIN, SPACING = 9, 12, 15, 18
NUMBERS = 21
"""float64 of a warp: its matrix, then z, y, x of each: its centre, the place that others are told from, the first point
of displacements, and how far these are apart."""
SPAN = 6
"""int64 of some columns of voxels beside the same points: their first, the one behind, and four points."""
FAR = 3e38  # of float32, nearly the most


def places_room(counts: tuple[int, int, int], line: int, columns: int) -> int:
    """Return the bytes of room that `warped_places` needs, for so many points."""
    _, rows, across = counts
    return 8 * (3 * (rows + 1) * across + 8 + SPAN * columns) + 16 * line + 24 * LANES


def nearest_room(columns: int) -> int:
    """Return the bytes of room that `nearest_voxels` needs."""
    return 4 * columns + VECTOR_BYTES


@part
def _beside(place: float, count: int, points: Any, first: int, weights: Any) -> None:
    """Find four of `count` points 0, 1, ... beside a place, the last ones going on, and their weights."""
    own = floor(place)
    t = place - own
    rest = 1 - t
    weights[0] = rest * rest * rest / 6
    weights[1] = (3 * t * t * t - 6 * t * t + 4) / 6
    weights[2] = (3 * rest * rest * rest - 6 * rest * rest + 4) / 6
    weights[3] = t * t * t / 6
    for k in range(4):
        points[first + k] = min(max(int64(own) - 1 + k, 0), count - 1)


@part
def _lines(target: int, source: int, points: Any, weights: Any, count: int) -> None:
    """Write the sum of four of some lines of `count` float64, by number and weight."""
    found = doubles(target)
    a, b = doubles(source + 8 * count * points[0]), doubles(source + 8 * count * points[1])
    c, d = doubles(source + 8 * count * points[2]), doubles(source + 8 * count * points[3])
    for i in range(count):
        upper = weights[0] * a[i] + weights[1] * b[i]
        found[i] = upper + (weights[2] * c[i] + weights[3] * d[i])


@part
def _spans(
    spans: Any, table: Any, line: int, begin: float, step: float, count: int, columns: int,
    weights: Any,
) -> int:  # fmt: skip
    """Find the columns beside the same points, and what these weigh at each, float32 (4, line); return how many."""
    found = 0
    for column in range(columns):
        place = (begin + column) / step
        here = 0 if found == 0 else SPAN * (found - 1)
        if found == 0 or floor(place) != floor((begin + column - 1) / step):
            here, found = SPAN * found, found + 1
            spans[here] = column
        _beside(place, count, spans, here + 2, weights)
        spans[here + 1] = column + 1
        for k in range(4):
            table[k * line + column] = float32(weights[k])
    return found


@part
def _bent(row: int, line: Any, table: int, step: int, spans: Any, count: int) -> None:
    """Add the displacements of a row: sums of four points, the same for neighbours side by side."""
    for number in range(count):
        here = SPAN * number
        first, last = spans[here], spans[here + 1]
        a, b = splat(line[spans[here + 2]]), splat(line[spans[here + 3]])
        c, d = splat(line[spans[here + 4]]), splat(line[spans[here + 5]])
        for x in range(first // LANES * LANES, last, LANES):
            at = table + 4 * x
            near = fma(b, load(at + 4 * step), a * load(at))
            far = fma(d, load(at + 12 * step), c * load(at + 8 * step))
            voxel, place = lane_numbers() + splat_int(x), load(row + 4 * x)
            own = (voxel >= splat_int(first)) & (voxel < splat_int(last))
            store(row + 4 * x, select(own, place + (near + far), place))


@part
def _straight(row: int, first: float, step: float, line: int) -> None:
    """Write a row of places: the first, and so far from one to the next."""
    begin, by = splat(first), splat(step)
    for x in range(0, line, LANES):
        store(row + 4 * x, fma(by, int_to_float(lane_numbers() + splat_int(x)), begin))


@part
def _widened(row: int, columns: int, ends: int) -> None:
    """Widen the least and the largest of places, a vector of each, by those of a row."""
    low, high = load(ends), load(ends + VECTOR_BYTES)
    for x in range(0, columns, LANES):
        own, place = below(columns - x), load(row + 4 * x)
        low = select(own & (place < low), place, low)
        high = select(own & (place > high), place, high)
    store(ends, low)
    store(ends + VECTOR_BYTES, high)


@native(types.void(*[types.int64] * 15))
def warped_places(
    target: int,
    apart: int,
    line: int,
    begins: int,
    sections: int,
    rows: int,
    columns: int,
    numbers: int,
    control: int,
    deep: int,
    down: int,
    across: int,
    axis: int,
    found: int,
    room: int,
) -> None:
    """Write where a warp reads lattices of places, from `axis` on: float32 (axis, sections, rows, line).

    `apart`: float32 from an axis to the next. Rows have `columns`; the rest of their line is written, too, and means
    nothing. `begins`: the first z, y, x of each section, float64. `numbers`: NUMBERS of the warp, told beside BASE.
    `control`: displacements, float64 (3, deep, down, across), or 0. `found`: the least along z, y and x is written
    there, and the largest, float32. `room`: `places_room` bytes.
    """
    number, begin = doubles(numbers), doubles(begins)
    plane = down * across
    bent = room + 8 * 3 * plane
    points = bent + 8 * 3 * across
    weights = points + 32
    spans = weights + 32
    table = spans + 8 * SPAN * columns
    ends = table + 16 * line
    own = longs(points)
    weight = doubles(weights)
    for a in range(axis, 3):
        store(ends + 2 * a * VECTOR_BYTES, splat(FAR))
        store(ends + (2 * a + 1) * VECTOR_BYTES, splat(-FAR))
    spread = 0
    for section in range(sections):
        z, y, x = begin[3 * section], begin[3 * section + 1], begin[3 * section + 2]
        if control != 0:
            if section == 0 or x != begin[3 * section - 1]:
                spread = _spans(
                    longs(spans), floats(table), line, x - number[ORIGIN + 2], number[SPACING + 2], across, columns,
                    weight,
                )  # fmt: skip
            _beside((z - number[ORIGIN]) / number[SPACING], deep, own, 0, weight)
            for a in range(axis, 3):
                # Axis by axis: a row of voxels needs few numbers of each.
                _lines(room + 8 * a * plane, control + 8 * a * deep * plane, own, weight, plane)
        for row in range(rows):
            if control != 0:
                place = (y + row - number[ORIGIN + 1]) / number[SPACING + 1]
                _beside(place, down, own, 0, weight)
            for a in range(axis, 3):
                at = target + 4 * ((a - axis) * apart + (section * rows + row) * line)
                first = number[3 * a] * (z - number[CENTRE])
                first += number[3 * a + 1] * (y + row - number[CENTRE + 1])
                first += number[3 * a + 2] * (x - number[CENTRE + 2])
                first += number[CENTRE + a] - number[BASE + a]
                _straight(at, first, number[3 * a + 2], line)
                if control != 0:
                    _lines(bent + 8 * a * across, room + 8 * a * plane, own, weight, across)
                    _bent(at, doubles(bent + 8 * a * across), table, line, longs(spans), spread)
                _widened(at, columns, ends + 2 * a * VECTOR_BYTES)
    lowest, highest = floats(found), floats(found + 12)
    for a in range(axis, 3):
        least, most = floats(ends + 2 * a * VECTOR_BYTES), floats(ends + (2 * a + 1) * VECTOR_BYTES)
        lowest[a], highest[a] = least[0], most[0]
        for lane in range(1, LANES):
            lowest[a] = min(lowest[a], least[lane])
            highest[a] = max(highest[a], most[lane])


@inlined
def floored(x: Any) -> Any:
    """Return the largest whole numbers that are no larger, for less than 2^22, and the same as integers."""
    rounded = x + splat(ROUND)
    whole = rounded - splat(ROUND)
    above = select(whole > x, splat(1.0), splat(0.0))
    return whole - above, bits(rounded - above) - splat_int(ROUND_BITS)


@inlined
def _nearest(place: int, by: float, size: int) -> Any:
    """Return the nearest of `size` voxels to some places; `by`: from a place to the voxel that holds it."""
    own = floored(load(place) + splat(by) + splat(0.5))[0]
    # Within, as a sum of float32 may round up.
    own = select(own > splat(0.0), own, splat(0.0))
    last = splat(size - 1.0)
    own = select(own < last, own, last)
    return bits(own + splat(ROUND)) - splat_int(ROUND_BITS)


@part
def _numbered(
    target: int, place: int, apart: int, axis: int, columns: int, by: Any, depth: int, height: int, width: int
) -> None:  # fmt: skip
    """Write the numbers of the voxels nearest to a row of places, int32."""
    for i in range(0, columns, LANES):
        at = place + 4 * i
        found = splat_int(0)
        if axis == 0:
            found = _nearest(at, by[0], depth) * splat_int(height * width)
            at += 4 * apart
        found = found + _nearest(at, by[1], height) * splat_int(width)
        found = found + _nearest(at + 4 * apart, by[2], width)
        store(target + 4 * i, from_bits(found))


@part
def _copied(target: int, source: int, offsets: Any, count: int, size: int) -> None:
    """Copy elements of `size` bytes, by number."""
    if size == 1:
        one, first = bytes_(target), bytes_(source)
        for i in range(count):
            one[i] = first[offsets[i]]
    elif size == 2:
        two, second = shorts(target), shorts(source)
        for i in range(count):
            two[i] = second[offsets[i]]
    elif size == 4:
        three, third = ints(target), ints(source)
        for i in range(count):
            three[i] = third[offsets[i]]
    else:
        four, fourth = longs(target), longs(source)
        for i in range(count):
            four[i] = fourth[offsets[i]]


@native(types.void(*[types.int64] * 23))
def nearest_voxels(
    target: int,
    source: int,
    size: int,
    channels: int,
    depth: int,
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
    """Copy the voxels nearest to places: (channels, last - first, rows, columns) of (channels, depth, height, width).

    Elements have `size` bytes, 1, 2, 4 or 8. `places`: of axes from `axis` on, `apart` float32 from each other, with
    `of_rows` rows in a section; those asked for are sections `first` to before `last`, rows from `top` on and columns
    from `left` on, and read a vector beyond the last. `deep`, `down` and `across`: from a place to the voxel that holds
    it, along z, y and x. With `axis` 1, section s reads plane s + `deep`. `room`: `nearest_room` bytes.
    """
    end, offsets, plane = longs(ends), ints(room), height * width
    by = float(deep), float(down), float(across)
    begin, section = int64(0), int64(0)
    while begin < last:
        stop = min(last, end[section])
        begin = max(begin, first)
        if begin < stop:
            for row in range(rows):
                at = places + 4 * (((section * of_rows) + top + row) * line + left)
                _numbered(room, at, apart, axis, columns, by, depth, height, width)
                for own in range(begin, stop):
                    here = (own + deep) * plane if axis != 0 else int64(0)
                    for channel in range(channels):
                        found = ((channel * (last - first) + own - first) * rows + row) * columns
                        read = source + size * (channel * depth * plane + here)
                        _copied(target + size * found, read, offsets, columns, size)
        begin = max(begin, end[section])
        section += 1
