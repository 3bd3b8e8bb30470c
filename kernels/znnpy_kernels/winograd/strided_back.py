"""Data gradient of filters of 3^3 taps with strides of two, and of 1 x 3 x 3, by minimal filtering (`strided_lines`).

Tiles of eight voxels along each strided axis, of some rows: the five gradients that they see along it are transformed
line by line; then products follow filter by filter, each with the points that it meets; then sums become voxels. A
tile's values depend on its gradients alone, not on the tiles around it.

Argument words: those of `planes`, with the gradient as source and the voxels as target, where z0..z1 and y0..y1 are
tiles, and `dilation_*` and `accumulate` are not read; and

    filters                     of `winograd_strided_exchanged`, whose words and points are those of `filters`
    block0, block1              vectors of this task, an even one first: `target`, `output` and `bias_gradient` begin
                                with the first
    shift_*                     voxels of the first tiles before the target, 0 or 1

Tasks may run concurrently if their tiles or blocks are disjoint. Scratch of a worker, `strided_back_floats`: places of
the tiles; addresses of a product; a tile that reaches beyond the source, or a row beyond the target and its values;
lines of a tile; gradients at the points [point][block][tile][lane]; sums [block][place][tile][lane], where an axis has
five of voxels that meet two taps, and four of others.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import Kernel, kernel, words
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import longs
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import splat, store
from znnpy_kernels.winograd import filters, planes
from znnpy_kernels.winograd.filters import compiled_point_bytes, exchanging_of, transformed_of
from znnpy_kernels.winograd.forms import FORMS, NEW, Triple, name_of
from znnpy_kernels.winograd.planes import added, copied
from znnpy_kernels.winograd.products import compiled_odd_bytes, odd_bytes
from znnpy_kernels.winograd.strided import PLACES_BYTES, TABLE_BYTES, group_of, point_bytes_of
from znnpy_kernels.winograd.strided_lines import (
    ALONE,
    BACK_FACTORS,
    INNER,
    POINTS,
    SEEN,
    STRIDED_FORMS,
    along_back_target,
    back_filter_line,
    row_of,
)
from znnpy_kernels.winograd.strided_products import sum_terms
from znnpy_kernels.winograd.strided_tiles import fetched, seen_along, to_back_points

AT = words(planes.AT, "filters block0 block1 shift_z shift_y shift_x")
MADE = 2 * NEW
"""Voxels of a tile along a strided axis."""
_row = row_of(AT)
_group, _point = inlined(group_of), inlined(point_bytes_of)


def _sums(form: Any) -> Any:
    """Return the sums of a tile."""
    return (2 * form.points_z - 1) * (2 * form.points_y - 1) * (2 * form.points_x - 1)


def _points(form: Any) -> Any:
    return form.points_z * form.points_y * form.points_x


def _loose_vectors(form: Any) -> Any:
    """Return the vectors of a tile's copy, or of a row and its values."""
    return form.points_z * form.points_y * form.points_x + 2 * MADE


def _lines_vectors(form: Any) -> Any:
    """Return the vectors of sums that are voxels along z already, and of a plane of these that are so along y, too."""
    flat = (2 * form.points_y - 1) * (2 * form.points_x - 1)
    return MADE * flat + flat


_count, _seen, _loose, _lines = (
    inlined(it) for it in (_sums, _points, _loose_vectors, _lines_vectors)
)


def strided_back_floats(taps: Triple, inputs: int, outputs: int) -> int:
    """Floats of scratch that each worker needs between so many channels of the gradient and of the source."""
    form = STRIDED_FORMS[taps]
    points = _points(form) * odd_bytes(-(-inputs // LANES) * group_of(form))
    sums = -(-outputs // LANES) * _sums(form) * point_bytes_of(form)
    tile = (_loose_vectors(form) + _lines_vectors(form)) * VECTOR_BYTES
    return int(PLACES_BYTES + TABLE_BYTES + tile + points + sums) // 4


@inlined
def made_along(points: int) -> Any:
    """Return the voxels of a tile along an axis."""
    return MADE if points > 1 else 1


@inlined
def _along_x(form: Any, args: Any) -> Any:
    return cover(args[AT.target_size_x] + args[AT.shift_x], made_along(form.points_x))


@inlined
def _note(form: Any, args: Any, first: int, count: int, places: Any) -> None:
    """Note the numbers z, y, x of some of the task's tiles, which are numbered along x first."""
    along_x, along_y = _along_x(form, args), args[AT.y1] - args[AT.y0]
    for tile in range(count):
        number = first + tile
        row = number // along_x
        places[3 * tile] = args[AT.z0] + row // along_y
        places[3 * tile + 1] = args[AT.y0] + row % along_y
        places[3 * tile + 2] = number % along_x


@inlined
def _begin(tile: int, points: int, before: int) -> Any:
    """Return the first gradient that a tile sees along an axis."""
    return (NEW * tile if points > 1 else tile) - before


@inlined
def _to_points(
    form: Any, args: Any, places: Any, count: int, loose: int, points: int, slot: int
) -> None:
    """Gradients of all tiles and blocks to their points."""
    counts = form.points_z, form.points_y, form.points_x
    steps = 4 * args[AT.source_z], 4 * args[AT.source_y]
    sizes = args[AT.source_size_z], args[AT.source_size_y], args[AT.source_size_x]
    lines = loose + _loose(form) * VECTOR_BYTES
    # The block outermost: its voxels lie together in memory.
    for block in range(cover(args[AT.inputs], LANES)):
        for tile in range(count):
            z = _begin(places[3 * tile], form.points_z, args[AT.before_z])
            y = _begin(places[3 * tile + 1], form.points_y, args[AT.before_y])
            x = _begin(places[3 * tile + 2], form.points_x, args[AT.before_x])
            here = args[AT.source] + 4 * block * args[AT.source_block]
            here += z * steps[0] + y * steps[1] + x * VECTOR_BYTES
            seen = fetched((z, y, x), counts, sizes, here, steps, loose)
            into = points + (block * _group(form) + tile) * VECTOR_BYTES
            to_back_points(form, seen[0], (seen[1], seen[2]), lines, into, slot)


@inlined
def _meets(points: int, tap: int) -> Any:
    """Return how many places along an axis a filter's point meets."""
    return NEW if points > 1 and tap == INNER else 1


@inlined
def _place(points: int, tap: int, number: int) -> Any:
    """Return a place of the gradient that a filter's point meets, and that of the sum."""
    if points > 1 and tap == INNER:
        return (ALONE if number == NEW - 1 else number), POINTS + number
    return tap, tap


@inlined
def _multiplied(
    form: Any, args: Any, count: int, points: int, slot: int, table: int, sums: int
) -> None:
    """Products of all filters, in the order in which they lie, [z][x][y]."""
    inputs, outputs = args[AT.inputs], args[AT.block1] - args[AT.block0]
    step, point, entries = compiled_point_bytes(inputs, args[AT.blocks]), _point(form), longs(table)
    # Filters of a point lie by pairs of vectors of outputs: those before the task's own, and all others.
    weights = args[AT.filters] + args[AT.block0] * inputs * VECTOR_BYTES
    source_block, target_block = _group(form) * VECTOR_BYTES, _count(form) * point
    high, wide = seen_along(form.points_y), seen_along(form.points_x)
    for tap_z in range(_taps(form.points_z)):
        for tap_x in range(_taps(form.points_x)):
            for tap_y in range(_taps(form.points_y)):
                for by_z in range(_meets(form.points_z, tap_z)):
                    for by_y in range(_meets(form.points_y, tap_y)):
                        for by_x in range(_meets(form.points_x, tap_x)):
                            z, to_z = _place(form.points_z, tap_z, by_z)
                            y, to_y = _place(form.points_y, tap_y, by_y)
                            x, to_x = _place(form.points_x, tap_x, by_x)
                            number = (z * form.points_y + y) * form.points_x + x
                            entries[0] = points + number * slot
                            entries[1] = weights
                            target = sums + ((to_z * high + to_y) * wide + to_x) * point
                            sum_terms(
                                table, 1, inputs, outputs, source_block, target, target_block, count
                            )
                weights += step


@inlined
def _taps(points: int) -> Any:
    """Return the points of filters along an axis."""
    return points + 1 if points > 1 else 1


@inlined
def _written(args: Any, block: int, place: Any, source: int, step: int, loose: int) -> None:
    """A row of voxels of one tile and block, those outside dropped; `place`: z, y, x, of which x may lie outside."""
    target = args[AT.target] + 4 * (
        block * args[AT.target_block] + place[0] * args[AT.target_z] + place[1] * args[AT.target_y]
    )
    values = args[AT.output] + 4 * (
        block * args[AT.output_block] + place[0] * args[AT.output_z] + place[1] * args[AT.output_y]
    )
    first, end = max(0, -place[2]), min(MADE, args[AT.target_size_x] - place[2])
    whole, by = first == 0 and end == MADE, (0, VECTOR_BYTES)
    target += place[2] * VECTOR_BYTES
    values += place[2] * VECTOR_BYTES
    begin, count = first * VECTOR_BYTES, (1, end - first)
    if not whole and args[AT.output]:
        copied(values + begin, by, count, loose + begin, by)
    made = loose + MADE * VECTOR_BYTES
    here = target if whole else made
    _row(args, values if whole else loose, source, step, here)
    if args[AT.bias_gradient]:
        added(args[AT.bias_gradient] + block * VECTOR_BYTES, here + begin, by, count)
    if not whole:
        copied(made + begin, by, count, target + begin, by)


@inlined
def _finish(form: Any, args: Any, places: Any, count: int, loose: int, sums: int) -> None:
    """Voxels of all tiles and blocks; those outside the target are dropped."""
    high, wide, point = seen_along(form.points_y), seen_along(form.points_x), _point(form)
    flat = high * wide
    deep = loose + _loose(form) * VECTOR_BYTES
    lines = deep + MADE * flat * VECTOR_BYTES
    row = wide * VECTOR_BYTES
    for block in range(args[AT.block1] - args[AT.block0]):
        for tile in range(count):
            z = places[3 * tile] * made_along(form.points_z) - args[AT.shift_z]
            y = places[3 * tile + 1] * made_along(form.points_y) - args[AT.shift_y]
            x = places[3 * tile + 2] * made_along(form.points_x) - args[AT.shift_x]
            own = sums + block * _count(form) * point + tile * VECTOR_BYTES
            if form.points_z > 1:
                for number in range(flat):
                    into = deep + number * VECTOR_BYTES
                    along_back_target(own + number * point, flat * point, into, flat * VECTOR_BYTES)
            for plane in range(made_along(form.points_z)):
                if 0 <= z + plane < args[AT.target_size_z]:
                    for number in range(wide):
                        into = lines + number * VECTOR_BYTES
                        if form.points_z > 1:
                            seen = deep + (plane * flat + number) * VECTOR_BYTES
                            along_back_target(seen, row, into, row)
                        else:
                            along_back_target(own + number * point, wide * point, into, row)
                    for here in range(max(0, -y), min(MADE, args[AT.target_size_y] - y)):
                        place = z + plane, y + here, x
                        _written(args, block, place, lines + here * row, VECTOR_BYTES, loose)


@inlined
def _groups(form: Any, args: Any, scratch: int) -> None:
    """Compute the tiles of a task, some at a time."""
    places, table = longs(scratch), scratch + PLACES_BYTES
    loose = table + TABLE_BYTES
    points = loose + (_loose(form) + _lines(form)) * VECTOR_BYTES
    slot = compiled_odd_bytes(cover(args[AT.inputs], LANES) * _group(form))
    sums = points + _seen(form) * slot
    if args[AT.bias_gradient]:
        for block in range(args[AT.block1] - args[AT.block0]):
            store(args[AT.bias_gradient] + block * VECTOR_BYTES, splat(0.0))
    total = (args[AT.z1] - args[AT.z0]) * (args[AT.y1] - args[AT.y0]) * _along_x(form, args)
    groups = cover(total, _group(form))
    for group in range(groups):
        first, end = group * total // groups, (group + 1) * total // groups
        _note(form, args, first, end - first, places)
        _to_points(form, args, places, end - first, loose, points, slot)
        _multiplied(form, args, end - first, points, slot, table, sums)
        _finish(form, args, places, end - first, loose, sums)


def _strided_back(taps: Triple) -> Kernel:
    """Return the kernel for filters of so many taps."""
    form = STRIDED_FORMS[taps]

    @kernel(AT, name=f"winograd_strided_back{name_of(taps)}")
    def winograd_strided_back(args: Any, worker: int) -> None:
        """Compute the voxels of some tiles and blocks. Words: see the module."""
        _groups(form, args, args[AT.scratch] + 4 * worker * args[AT.scratch_worker])

    return winograd_strided_back


_exchange = exchanging_of(transformed_of(back_filter_line, BACK_FACTORS))


def _exchanged(taps: Triple) -> Kernel:
    """Return the kernel that transforms filters of so many taps."""
    form = FORMS[taps]

    @kernel(filters.EXCHANGED, name=f"winograd_strided_exchanged{name_of(taps)}")
    def winograd_strided_exchanged(args: Any, worker: int) -> None:
        """Write the points of some filters. Words: those of `filters`."""
        _exchange(form, args, worker)

    return winograd_strided_exchanged


STRIDED_BACK = {taps: _strided_back(taps) for taps in STRIDED_FORMS}
STRIDED_EXCHANGING = {taps: _exchanged(taps) for taps in STRIDED_FORMS}
"""Kernels of the data gradient and of its filters, by the taps of filters along z, y, x."""
assert SEEN == 2 * POINTS - 1
