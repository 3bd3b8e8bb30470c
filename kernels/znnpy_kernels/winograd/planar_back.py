"""Data and weight gradient by Winograd's minimal filtering between planar channels, in one march: lanes are tiles.

As `planar` from the gradient to the source's, and as `planar_gradient` with the roles of both exchanged (`cubes`): a
tile's points of the gradient make its data gradient, and with those of values, sums for the filters. So each map is
read once, and the gradient is transformed once.

Argument words: those of `both_gradients`, of planar channels in place of blocks, with dilations 1, and

    width                       floats from tap to tap of packed filters: each input has all its taps, one by one

Tasks may run concurrently if their tiles, and `weights`, are disjoint. Scratch of a worker, `planar_back_floats`, in
this order: the groups; a row of one channel on its way; points of a column [group][channel][point], of gradients and
of values; the rings of transformed rows of each group, as in `planar`; rows of values, [column][row][channel] of each
group; sums [column][point][block of pairs]; points of one block, then its taps.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import Kernel, kernel, words
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.winograd import both_gradients
from znnpy_kernels.winograd.both_gradients import clear
from znnpy_kernels.winograd.forms import FORMS, Triple, name_of
from znnpy_kernels.winograd.planar import (
    channels_of,
    column_bytes,
    filter_bytes_of_column,
    finish_rows,
    products_of_column,
    ring_bytes,
    source_image,
)
from znnpy_kernels.winograd.planar_gradient import column_sums, taps_of_pairs
from znnpy_kernels.winograd.planar_lines import PLANAR
from znnpy_kernels.winograd.planar_products import INPUTS, OUTPUTS
from znnpy_kernels.winograd.planar_units import (
    GROUPS,
    TABLE_BYTES,
    dealt,
    rows_of_gradients,
    rows_of_voxels,
    spare_vectors,
)
from znnpy_kernels.winograd.planes import clear_bias_gradient, compiled_plane, plane
from znnpy_kernels.winograd.products import compiled_odd_bytes, odd_bytes

AT = words(both_gradients.AT, "width")
# Bytes of the rings of groups that march together: more groups take fewer sums over lanes, until an L2 cache is full.
ROOM = 5 << 16
_spare = inlined(spare_vectors)


@inlined
def _values_column(form: Any, args: Any) -> Any:
    """From column to column of rows of values."""
    return compiled_odd_bytes(form.new_y * args[AT.channels])


@inlined
def _values_bytes(form: Any, args: Any) -> Any:
    """Bytes of a group's rows of values."""
    return compiled_plane(form) * _values_column(form, args)


@inlined
def _each(form: Any, args: Any) -> Any:
    """Bytes of the points of a group's column."""
    vectors = cover(args[AT.inputs], INPUTS) * INPUTS + cover(args[AT.channels], OUTPUTS) * OUTPUTS
    return vectors * form.points_y * VECTOR_BYTES


def planar_back_floats(taps: Triple, inputs: int, outputs: int) -> int:
    """Floats of scratch that each worker needs from a gradient of `inputs` channels to one of `outputs`."""
    form = FORMS[taps]
    rows, blocks = -(-inputs // INPUTS), -(-outputs // OUTPUTS)
    # As `planar.ring_bytes`, `_values_bytes` and `_each`.
    ring = plane(form) * odd_bytes(form.points_y * max(inputs, outputs))
    ring += plane(form) * odd_bytes(form.new_y * outputs)
    points = GROUPS * (rows * INPUTS + blocks * OUTPUTS) * form.points_y
    cube = plane(form) * form.points_y
    vectors = spare_vectors(form.points_z) + points + cube * (rows * blocks + 2)
    return int(TABLE_BYTES + GROUPS * ring + vectors * VECTOR_BYTES) // 4


@inlined
def _values_image(args: Any) -> Any:
    """The values as an image (`planar_units`), which lie where the target does."""
    return (
        args[AT.values], args[AT.values_block], args[AT.values_z], args[AT.values_y],
        args[AT.target_size_z], args[AT.target_size_y], args[AT.target_size_x], 0, 0, 0,
    )  # fmt: skip


@inlined
def _march(form: Any, args: Any, table: int, groups: int, scratch: int, sums: int) -> None:
    """Compute all tiles along y of some groups: two of six rows are those of the tile before."""
    inputs, channels = args[AT.inputs], args[AT.channels]
    column, of_group, slot = (
        column_bytes(form, channels_of(args)),
        ring_bytes(form, channels_of(args)),
        channels_of(args) * VECTOR_BYTES,
    )
    values_column, of_values = _values_column(form, args), _values_bytes(form, args)
    spare, points = scratch, scratch + _spare(form.points_z) * VECTOR_BYTES
    ring = points + GROUPS * _each(form, args)
    rows = ring + GROUPS * of_group
    step = form.points_y * cover(inputs, INPUTS) * cover(channels, OUTPUTS) * VECTOR_BYTES
    filters, of_column = args[AT.filters], filter_bytes_of_column(form, inputs, channels)
    for tile in range(args[AT.y0], args[AT.y1]):
        y = tile * form.new_y
        first = y % form.points_y
        new = form.points_y if tile == args[AT.y0] else form.new_y
        for row in range(form.points_y - new, form.points_y):
            here = ring + (first + row) % form.points_y * slot
            rows_of_voxels(
                form,
                table,
                groups,
                source_image(args),
                inputs,
                y + row,
                spare,
                here,
                column,
                of_group,
            )
        for row in range(form.new_y):
            here = rows + row * channels * VECTOR_BYTES
            rows_of_gradients(
                form, table, groups, _values_image(args), channels, y + row, spare, here,
                values_column, of_values,
            )  # fmt: skip
        for number in range(compiled_plane(form)):
            here = ring + number * column
            column_sums(
                form, groups, first, (inputs, channels), (here, of_group, slot),
                (rows + number * values_column, of_values, channels * VECTOR_BYTES),
                points, _each(form, args), sums + number * step,
            )  # fmt: skip
            for group in range(groups):
                own = points + group * _each(form, args)
                products_of_column(
                    form, (inputs, channels), filters + number * of_column, own,
                    here + group * of_group, first, slot,
                )  # fmt: skip
        for row in range(min(form.new_y, args[AT.target_size_y] - y)):
            here = ring + (first + row) % form.points_y * slot
            finish_rows(form, args, table, groups, y + row, here, spare)


def _planar_back(taps: Triple) -> Kernel:
    """Return the kernel for filters of so many taps along z, y, x."""
    form = FORMS[taps]

    @kernel(AT, name=f"winograd_planar_back{name_of(taps)}")
    def winograd_planar_back(args: Any, worker: int) -> None:
        """Both gradients of planar channels. Words: see the module."""
        clear_bias_gradient(args)
        table = args[AT.scratch] + 4 * worker * args[AT.scratch_worker]
        inputs, channels = args[AT.inputs], args[AT.channels]
        pairs = cover(inputs, INPUTS) * cover(channels, OUTPUTS)
        work = table + TABLE_BYTES
        points = work + _spare(form.points_z) * VECTOR_BYTES
        cube = compiled_plane(form) * form.points_y
        own = ring_bytes(form, channels_of(args)) + _values_bytes(form, args)
        sums = points + GROUPS * (_each(form, args) + own)
        # Channels that fill up a block of pairs stay zeros.
        clear(points, GROUPS * _each(form, args) // VECTOR_BYTES)
        clear(sums, cube * pairs)
        most = max(1, min(GROUPS, ROOM // own))
        sizes = args[AT.target_size_z], args[AT.target_size_x]
        along_x, groups, count = cover(sizes[1], LANES), 0, 0
        total = (args[AT.z1] - args[AT.z0]) * along_x
        for number in range(total):
            z, x = (args[AT.z0] + number // along_x) * form.new_z, number % along_x * LANES
            last, image = number == total - 1, source_image(args)
            groups, count = dealt(form, table, groups, count, image, sizes, z, x, last)
            if groups == most or (groups and last):
                _march(form, args, table, groups, work, sums)
                groups = 0
        behind = sums + cube * pairs * VECTOR_BYTES
        taps_of_pairs(form, inputs, channels, sums, behind, args[AT.weights], args[AT.width], True)

    return winograd_planar_back


WINOGRAD_PLANAR_BACK = {taps: _planar_back(taps) for taps in PLANAR}
"""By the taps of filters along z, y, x, of which those along x are three."""
