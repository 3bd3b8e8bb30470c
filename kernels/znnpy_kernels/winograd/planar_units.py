"""Units and groups of planar tiles, and rows of them on their way into transformed columns.

LANES voxels of a row are a unit, of LANES / 4 tiles; UNITS units, anywhere along z and x, are a group, whose tiles fill
a vector for each point. A table has the words of some groups, whose rows lie behind each other in memory if they can.

An image is a tuple: address of voxel (0, 0, 0); strides from channel to channel, along z and along y, in floats;
sizes z, y, x; voxels before it, z, y, x, that the first unit sees, all zeros.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import longs
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import splat, store
from znnpy_kernels.winograd.forms import POINTS, Axis
from znnpy_kernels.winograd.line_transforms import gradient_line, source_line
from znnpy_kernels.winograd.planar_lines import (
    BEHIND,
    UNITS,
    asking_of,
    border_lines_of,
    depth_lines_of,
    gather_behind,
    sort_gradients,
    sort_lines,
)
from znnpy_kernels.winograd.planes import compiled_plane

VECTORS = UNITS + 1  # of a row: its units, and what lies behind them
GROUPS = 4
"""Groups that march together, at most."""
ALL = (1 << BEHIND) - 1
EVERY = (1 << LANES) - 1
# Words of a unit: z and x of its first output; bits of voxels that are there, of those behind it, of outputs; whether
# all of its voxels lie in the source, and all of its outputs in the target. Of a group: how many units it has; whether
# all their planes lie in the source, and the bits of what lies behind its units in such planes; then its units.
Z, X, _SEEN, _BEHIND, MADE, _WHOLE, FULL, _WORDS = range(8)
_COUNT, _DEEP, _BITS, _FIRST = range(4)
GROUP_BYTES = -(-8 * (_FIRST + _WORDS * UNITS) // 64) * 64
TABLE_BYTES = GROUPS * GROUP_BYTES


def _points(axis: Axis) -> int:
    return axis.points


def _new(axis: Axis) -> int:
    return axis.new


_source_lines, _border_lines = (
    depth_lines_of(source_line, _points),
    border_lines_of(source_line, _points),
)
_gradient_lines, _border_gradients = (
    depth_lines_of(gradient_line, _new),
    border_lines_of(gradient_line, _new),
)
_ask, _ask_for_gradients = asking_of(), asking_of(new=True)


@inlined
def _bits(low: int, high: int) -> int:
    """The bits of lanes low..high that exist."""
    low, high = min(max(low, 0), LANES), min(max(high, 0), LANES)
    return (1 << high) - (1 << min(low, high))


@inlined
def _note(
    form: Any, table: int, group: int, unit: int, image: Any, sizes: Any, z: int, x: int
) -> None:
    """Note the unit whose first output lies at z, x of a target of `sizes` voxels along z and x."""
    at = longs(table + group * GROUP_BYTES)
    start, size = x - image[9], image[6]
    here = _FIRST + unit * _WORDS
    at[here + Z], at[here + X] = z, x
    at[here + _SEEN] = _bits(-start, size - start)
    at[here + _BEHIND] = _bits(-start - LANES, size - start - LANES) & ALL
    at[here + MADE] = _bits(0, sizes[1] - x)
    at[here + FULL] = at[here + MADE] == EVERY and z + form.new_z <= sizes[0]


@inlined
def _complete(form: Any, table: int, group: int, count: int, image: Any) -> None:
    """Close a group of so many units: the first one stands in for those that it has not, and makes nothing there."""
    at = longs(table + group * GROUP_BYTES)
    at[_COUNT] = count
    deep, bits = True, 0
    for unit in range(UNITS):
        here = _FIRST + unit * _WORDS
        if unit >= count:
            for number in range(_WORDS):
                at[here + number] = at[_FIRST + number]
            at[here + MADE], at[here + FULL] = 0, 0
        z = at[here + Z] - image[7]
        inside = z >= 0 and z + form.points_z <= image[4]
        at[here + _WHOLE] = inside and at[here + _SEEN] == EVERY
        deep = deep and inside
        bits |= at[here + _BEHIND] << (8 * unit)
    at[_DEEP], at[_BITS] = deep, bits


@inlined
def dealt(
    form: Any,
    table: int,
    groups: int,
    count: int,
    image: Any,
    sizes: Any,
    z: int,
    x: int,
    last: bool,
) -> Any:
    """Deal one more unit to the last group, which has `count`, and close it when it is full or the unit the last one.

    `sizes`: of the target, along z and x, beyond which units are none. Returns how many groups are complete, and the
    units of the next one.
    """
    if z < sizes[0]:
        _note(form, table, groups, count, image, sizes, z, x)
        count += 1
    if count == UNITS or (count and last):
        _complete(form, table, groups, count, image)
        return groups + 1, 0
    return groups, count


@inlined
def unit_count(table: int, group: int) -> Any:
    """Return the number of units of a group."""
    return longs(table + group * GROUP_BYTES)[_COUNT]


@inlined
def unit_word(table: int, group: int, unit: int, word: int) -> Any:
    """Return a word of a unit: Z, X, MADE or FULL."""
    return longs(table + group * GROUP_BYTES)[_FIRST + unit * _WORDS + word]


@inlined
def _place(at: Any, unit: int, image: Any, source: int) -> Any:
    """Return where the first voxel of a unit lies in a row, and the plane of it."""
    here = _FIRST + unit * _WORDS
    z = at[here + Z] - image[7]
    return source + 4 * (z * image[2] + at[here + X] - image[9]), z


@inlined
def _behind(at: Any, unit: int, z: int, size: int) -> Any:
    """The bits of what lies behind a unit in a plane, in the unit's byte."""
    bits = at[_FIRST + unit * _WORDS + _BEHIND] if 0 <= z < size else 0
    return bits << (8 * unit)


@inlined
def _transform(
    form: Any, at: Any, image: Any, source: int, spare: int, target: int, column: int
) -> None:
    """A row of one channel of a group, transformed along z and x, to vectors `column` bytes from each other."""
    along_z, size = 4 * image[2], image[4]
    row = VECTORS * VECTOR_BYTES
    behind = spare + form.points_z * row
    for unit in range(UNITS):
        place, z = _place(at, unit, image, source)
        to = spare + unit * VECTOR_BYTES
        # The rows that the next tile along y sees.
        _ask(form, place + 4 * form.new_y * image[3], along_z)
        # A row of an image has a border at two of its units alone.
        if at[_FIRST + unit * _WORDS + _WHOLE]:
            _source_lines(form, place, along_z, to, row)
        else:
            bits = at[_FIRST + unit * _WORDS + _SEEN]
            _border_lines(form, place, along_z, bits, -z, size - z, to, row)
    places = (
        _place(at, 0, image, source),
        _place(at, 1, image, source),
        _place(at, 2, image, source),
        _place(at, 3, image, source),
    )
    for point in range(form.points_z):
        bits, by = at[_BITS], point * along_z + VECTOR_BYTES
        if not at[_DEEP]:
            bits = 0
            for unit in range(UNITS):
                bits |= _behind(at, unit, places[unit][1] + point, size)
        to = behind + point * VECTOR_BYTES
        gather_behind(
            places[0][0] + by, places[1][0] + by, places[2][0] + by, places[3][0] + by, bits, to
        )
    _source_lines(form, behind, VECTOR_BYTES, spare + UNITS * VECTOR_BYTES, row)
    for point in range(form.points_z):
        sort_lines(spare + point * row, VECTOR_BYTES, target + point * POINTS * column, column)


def spare_vectors(points_z: int) -> int:
    """Return the vectors that a row of one channel needs on its way along z and x."""
    return (VECTORS + 1) * points_z


@inlined
def rows_of_voxels(
    form: Any,
    table: int,
    groups: int,
    image: Any,
    channels: int,
    row: int,
    spare: int,
    target: int,
    column: int,
    group: int,
) -> None:
    """A row of all channels and groups, transformed along z and x; `row` of the image, or beyond it.

    To vectors [group][point along z][point along x][channel], `group` and `column` bytes from each other.
    """
    row -= image[8]
    for channel in range(channels):
        source = image[0] + 4 * (channel * image[1] + row * image[3])
        for number in range(groups):
            to = target + number * group + channel * VECTOR_BYTES
            if 0 <= row < image[5]:
                at = longs(table + number * GROUP_BYTES)
                _transform(form, at, image, source, spare, to, column)
            else:
                _zeros(form, to, column)


@inlined
def _zeros(form: Any, target: int, column: int) -> None:
    for point in range(compiled_plane(form)):
        store(target + point * column, splat(0.0))


@inlined
def rows_of_gradients(
    form: Any,
    table: int,
    groups: int,
    image: Any,
    channels: int,
    row: int,
    spare: int,
    target: int,
    column: int,
    group: int,
) -> None:
    """The same of a row of gradients, which lie where outputs do: new voxels alone."""
    width = UNITS * VECTOR_BYTES
    for channel in range(channels):
        source = image[0] + 4 * (channel * image[1] + row * image[3])
        for number in range(groups):
            to = target + number * group + channel * VECTOR_BYTES
            if row < image[5]:
                at = longs(table + number * GROUP_BYTES)
                for unit in range(UNITS):
                    here = _FIRST + unit * _WORDS
                    z, bits = at[here + Z], at[here + MADE]
                    place = source + 4 * (z * image[2] + at[here + X])
                    _ask_for_gradients(form, place + 4 * form.new_y * image[3], 4 * image[2])
                    into = spare + unit * VECTOR_BYTES
                    if at[here + FULL]:
                        _gradient_lines(form, place, 4 * image[2], into, width)
                    else:
                        along_z, high = 4 * image[2], image[4] - z
                        _border_gradients(form, place, along_z, bits, 0, high, into, width)
                for point in range(form.points_z):
                    first = to + point * POINTS * column
                    sort_gradients(spare + point * width, VECTOR_BYTES, first, column)
            else:
                _zeros(form, to, column)
