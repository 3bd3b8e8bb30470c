"""Winograd's minimal filtering between planar channels: lanes are tiles, so no lane is idle where channels are few.

As `forward`, but a vector holds voxels of a row instead of channels. LANES of them are a unit, of LANES / 4 tiles;
UNITS units are a group, whose tiles fill a vector for each point (`planar_lines`), and some groups march along y
together. One float of the filters meets LANES tiles. Filters have three taps along x.

Argument words: those of `planes`, where blocks are planar channels, dilations 1 and `bias_gradient` has LANES sums for
each output, and

    filters                     of `filters`

Tasks may run concurrently if their tiles are disjoint. Scratch of a worker, `planar_scratch_floats`, in this order:
the groups; a row of one channel, and what lies behind its units, transformed along z, or back; points of a column
[input][point]; the rings of transformed rows, [column][row][channel] of each group, whose first rows their outputs
replace.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import Kernel, kernel, words
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.winograd import planes
from znnpy_kernels.winograd.forms import FORMS, POINTS, Triple, name_of
from znnpy_kernels.winograd.line_transforms import source_depth
from znnpy_kernels.winograd.planar_lines import (
    PLANAR,
    UNITS,
    asking_of,
    finish_lines_of,
    unsort_lines,
)
from znnpy_kernels.winograd.planar_products import TOGETHER, column_products
from znnpy_kernels.winograd.planar_units import (
    FULL,
    GROUPS,
    MADE,
    TABLE_BYTES,
    X,
    Z,
    dealt,
    rows_of_voxels,
    spare_vectors,
    unit_count,
    unit_word,
)
from znnpy_kernels.winograd.planes import clear_bias_gradient, compiled_plane, plane
from znnpy_kernels.winograd.products import compiled_odd_bytes, odd_bytes

AT = words(planes.AT, "filters")
ROOM = 3 << 17
"""Bytes of the rings of groups that march together: they stay in an L2 cache."""
_ask_to_write, _ask_for_values = asking_of(new=True, write=True), asking_of(new=True)
_finish_lines, _finish_some = finish_lines_of(AT, whole=True), finish_lines_of(AT)
_spare = inlined(spare_vectors)


@inlined
def column_bytes(form: Any, channels: int) -> Any:
    """From column to column of a ring, whose rows have so many channels: an odd number of lines."""
    return compiled_odd_bytes(form.points_y * channels)


@inlined
def ring_bytes(form: Any, channels: int) -> Any:
    """Bytes of a group's ring of rows."""
    return compiled_plane(form) * column_bytes(form, channels)


@inlined
def channels_of(args: Any) -> Any:
    """Channels that a row has room for: outputs come where inputs were."""
    return max(args[AT.inputs], args[AT.blocks])


def planar_scratch_floats(taps: Triple, inputs: int, outputs: int) -> int:
    """Floats of scratch that each worker needs for a layer with filters of so many taps."""
    form = FORMS[taps]
    # As `column_bytes` and `ring_bytes`.
    ring = plane(form) * odd_bytes(form.points_y * max(inputs, outputs))
    vectors = spare_vectors(form.points_z) + form.points_y * inputs
    return int(TABLE_BYTES + vectors * VECTOR_BYTES + GROUPS * ring) // 4


@inlined
def filter_bytes_of_column(form: Any, inputs: int, outputs: int) -> Any:
    """Return the bytes of the transformed filters of a column's points."""
    return form.points_y * inputs * cover(outputs, LANES) * VECTOR_BYTES


@inlined
def products_of_column(
    form: Any, counts: Any, filters: int, points: int, column: int, first: int, slot: int
) -> None:
    """Products of a column's points [input][point], back along y, in the place of its first rows.

    `counts`: inputs and outputs; `filters`: of the column.
    """
    inputs, outputs = counts
    filter_bytes = cover(outputs, LANES) * VECTOR_BYTES
    for channel in range(0, outputs, TOGETHER):
        column_products(
            form,
            min(TOGETHER, outputs - channel),
            points,
            inputs,
            filters + 4 * channel,
            filter_bytes,
            column + channel * VECTOR_BYTES,
            first,
            slot,
        )


@inlined
def _columns(form: Any, args: Any, first: int, ring: int, points: int) -> None:
    """From the rows of a group to their outputs along y, in the place of the first rows."""
    inputs, outputs, channels = args[AT.inputs], args[AT.blocks], channels_of(args)
    column, slot = column_bytes(form, channels), channels * VECTOR_BYTES
    filters, step = args[AT.filters], filter_bytes_of_column(form, inputs, outputs)
    for number in range(compiled_plane(form)):
        here = ring + number * column
        for channel in range(inputs):
            to = points + channel * form.points_y * VECTOR_BYTES
            source_depth(form, here + channel * VECTOR_BYTES, first, slot, to, VECTOR_BYTES)
        products_of_column(
            form, (inputs, outputs), filters + number * step, points, here, first, slot
        )


@inlined
def _finish(
    form: Any, args: Any, table: int, group: int, channel: int, row: int, spare: int, total: int
) -> None:
    """A row of outputs of one channel of a group, back along z, into the target."""
    for unit in range(unit_count(table, group)):
        z, x = unit_word(table, group, unit, Z), unit_word(table, group, unit, X)
        target = channel * args[AT.target_block] + z * args[AT.target_z] + row * args[AT.target_y]
        value = channel * args[AT.output_block] + z * args[AT.output_z] + row * args[AT.output_y]
        target, value = args[AT.target] + 4 * (target + x), args[AT.output] + 4 * (value + x)
        ahead = 4 * form.new_y
        _ask_to_write(form, target + ahead * args[AT.target_y], 4 * args[AT.target_z])
        if args[AT.output]:
            _ask_for_values(form, value + ahead * args[AT.output_y], 4 * args[AT.output_z])
        bias, value_z, target_z = (
            args[AT.bias] + 4 * channel,
            4 * args[AT.output_z],
            4 * args[AT.target_z],
        )
        made, count = unit_word(table, group, unit, MADE), args[AT.target_size_z] - z
        here, step = spare + unit * VECTOR_BYTES, UNITS * VECTOR_BYTES
        if unit_word(table, group, unit, FULL):
            _finish_lines(
                form, args, bias, value, value_z, here, step, target, target_z, made, count, total
            )
        else:
            _finish_some(
                form, args, bias, value, value_z, here, step, target, target_z, made, count, total
            )


@inlined
def finish_rows(
    form: Any, args: Any, table: int, groups: int, row: int, ring: int, spare: int
) -> None:
    """A row of outputs of all channels and groups, back along x and z."""
    column = column_bytes(form, channels_of(args))
    for channel in range(args[AT.blocks]):
        total = args[AT.bias_gradient]
        total += channel * VECTOR_BYTES if total else 0
        for number in range(groups):
            here = ring + number * ring_bytes(form, channels_of(args)) + channel * VECTOR_BYTES
            for point in range(form.points_z):
                to = spare + point * UNITS * VECTOR_BYTES
                unsort_lines(here + point * POINTS * column, column, to, VECTOR_BYTES)
            _finish(form, args, table, number, channel, row, spare, total)


@inlined
def source_image(args: Any) -> Any:
    """The source as an image (`planar_units`)."""
    return (
        args[AT.source], args[AT.source_block], args[AT.source_z], args[AT.source_y],
        args[AT.source_size_z], args[AT.source_size_y], args[AT.source_size_x],
        args[AT.before_z], args[AT.before_y], args[AT.before_x],
    )  # fmt: skip


@inlined
def _march(form: Any, args: Any, table: int, groups: int, scratch: int) -> None:
    """Compute all tiles along y of some groups: two of six rows are those of the tile before."""
    image, channels, inputs = source_image(args), channels_of(args), args[AT.inputs]
    column, of_group = column_bytes(form, channels), ring_bytes(form, channels)
    slot = channels * VECTOR_BYTES
    spare, points = scratch, scratch + _spare(form.points_z) * VECTOR_BYTES
    ring = points + form.points_y * inputs * VECTOR_BYTES
    for tile in range(args[AT.y0], args[AT.y1]):
        y = tile * form.new_y
        first = y % form.points_y
        new = form.points_y if tile == args[AT.y0] else form.new_y
        for row in range(form.points_y - new, form.points_y):
            here = ring + (first + row) % form.points_y * slot
            rows_of_voxels(
                form, table, groups, image, inputs, y + row, spare, here, column, of_group
            )
        for number in range(groups):
            _columns(form, args, first, ring + number * of_group, points)
        for row in range(min(form.new_y, args[AT.target_size_y] - y)):
            here = ring + (first + row) % form.points_y * slot
            finish_rows(form, args, table, groups, y + row, here, spare)


def _planar(taps: Triple) -> Kernel:
    """Return the kernel for filters of so many taps along z, y, x."""
    form = FORMS[taps]

    @kernel(AT, name=f"winograd_planar{name_of(taps)}")
    def winograd_planar(args: Any, worker: int) -> None:
        """Correlation of planar channels with filters, bias and transfer. Words: see the module."""
        clear_bias_gradient(args)
        table = args[AT.scratch] + 4 * worker * args[AT.scratch_worker]
        most = max(1, min(GROUPS, ROOM // ring_bytes(form, channels_of(args))))
        sizes = args[AT.target_size_z], args[AT.target_size_x]
        along_x, groups, count = cover(sizes[1], LANES), 0, 0
        # Planes of units one after the other, so that their rows lie one behind the other.
        total = (args[AT.z1] - args[AT.z0]) * along_x
        for number in range(total):
            z, x = (args[AT.z0] + number // along_x) * form.new_z, number % along_x * LANES
            last = number == total - 1
            groups, count = dealt(form, table, groups, count, source_image(args), sizes, z, x, last)
            if groups == most or (groups and last):
                _march(form, args, table, groups, table + TABLE_BYTES)
                groups = 0

    return winograd_planar


WINOGRAD_PLANAR = {taps: _planar(taps) for taps in PLANAR}
"""By the taps of filters along z, y, x, of which those along x are three."""
