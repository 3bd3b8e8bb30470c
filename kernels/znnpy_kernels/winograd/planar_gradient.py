"""Weight gradients by Winograd's minimal filtering between planar channels: lanes are tiles, as in `planar`.

As `weight_gradient`, but a vector holds a point of LANES tiles, of one channel. Products of two vectors are summed over
the tiles of some groups, then over their lanes: LANES pairs of channels at a time, which make a vector of sums.

Argument words: those of `weight_gradient`, with `blocks` planar channels of the gradient, `*_block` from channel to
channel and dilations of 1, and

    before_*                    voxels before the source that the gradient's first ones see, all zeros
    width                       floats from tap to tap of packed filters: each input has all its taps, one by one

Tasks with different targets may run concurrently. The result depends on which tiles a task takes. Scratch of a worker,
`planar_gradient_floats`, in this order: the groups; a row of one channel on its way; points of a column
[group][channel][point], inputs and outputs; rings of transformed rows, and rows of gradients, [column][row][channel] of
each group; sums [column][point][block of pairs]; points of one block, then its taps.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import Kernel, kernel, words
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import floats
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import splat, store
from znnpy_kernels.winograd import weight_gradient
from znnpy_kernels.winograd.forms import FORMS, Triple, name_of
from znnpy_kernels.winograd.gradient_lines import filter_depth, filter_plane
from znnpy_kernels.winograd.line_transforms import source_depth
from znnpy_kernels.winograd.planar_lines import PLANAR, gradient_rows
from znnpy_kernels.winograd.planar_products import INPUTS, OUTPUTS, add_pairs
from znnpy_kernels.winograd.planar_units import (
    GROUPS,
    TABLE_BYTES,
    dealt,
    rows_of_gradients,
    rows_of_voxels,
    spare_vectors,
)
from znnpy_kernels.winograd.planes import compiled_plane, plane
from znnpy_kernels.winograd.products import compiled_odd_bytes, odd_bytes

AT = words(weight_gradient.AT, "width before_z before_y before_x")
# Bytes of the rings of groups that march together: more groups take fewer sums over lanes, until an L2 cache is full.
ROOM = 5 << 17
_spare = inlined(spare_vectors)


@inlined
def _columns_bytes(form: Any, inputs: int, outputs: int) -> Any:
    """From column to column of rows of voxels, and of rows of gradients."""
    return compiled_odd_bytes(form.points_y * inputs), compiled_odd_bytes(form.new_y * outputs)


@inlined
def _group_bytes(form: Any, inputs: int, outputs: int) -> Any:
    """Bytes of a group's rows of both."""
    column, gradient_column = _columns_bytes(form, inputs, outputs)
    return compiled_plane(form) * (column + gradient_column)


def planar_gradient_floats(taps: Triple, inputs: int, outputs: int) -> int:
    """Floats of scratch that each worker needs for a layer with filters of so many taps."""
    form = FORMS[taps]
    rows, blocks = -(-inputs // INPUTS), -(-outputs // OUTPUTS)
    # As `_columns_bytes` and `_group_bytes`.
    rings = odd_bytes(form.points_y * inputs) + odd_bytes(form.new_y * outputs)
    points = GROUPS * (rows * INPUTS + blocks * OUTPUTS) * form.points_y
    cube = plane(form) * form.points_y
    vectors = spare_vectors(form.points_z) + points + cube * (rows * blocks + 2)
    return int(TABLE_BYTES + GROUPS * plane(form) * rings + vectors * VECTOR_BYTES) // 4


@inlined
def _clear(target: int, vectors: int) -> None:
    for vector in range(vectors):
        store(target + vector * VECTOR_BYTES, splat(0.0))


@inlined
def column_sums(
    form: Any, groups: int, first: int, counts: Any, voxels: Any, gradients: Any, points: int,
    each: int, sums: int,
) -> None:  # fmt: skip
    """Points of a column of some groups along y, [group][channel][point], and their products added to its sums.

    `counts`: channels of voxels and of gradients; of both: the column of the first group, bytes from group to group and
    from row to row.
    """
    inputs, outputs = counts
    rows, blocks = cover(inputs, INPUTS), cover(outputs, OUTPUTS)
    line = form.points_y * VECTOR_BYTES
    behind = rows * INPUTS * line
    for group in range(groups):
        here, to = voxels[0] + group * voxels[1], points + group * each
        for channel in range(inputs):
            start = here + channel * VECTOR_BYTES
            source_depth(form, start, first, voxels[2], to + channel * line, VECTOR_BYTES)
        here = gradients[0] + group * gradients[1]
        for channel in range(outputs):
            start, into = here + channel * VECTOR_BYTES, to + behind + channel * line
            gradient_rows(form, start, gradients[2], into, VECTOR_BYTES)
    for point in range(form.points_y):
        here = points + point * VECTOR_BYTES
        target = sums + point * rows * blocks * VECTOR_BYTES
        for row in range(rows):
            source = here + row * INPUTS * line
            for block in range(blocks):
                gradient = here + behind + block * OUTPUTS * line
                add_pairs(source, gradient, line, groups, each, target)
                target += VECTOR_BYTES


@inlined
def _multiply(
    form: Any, args: Any, groups: int, first: int, ring: int, points: int, each: int, sums: int
) -> None:
    """Transforms along y and products, column by column."""
    inputs, outputs = args[AT.inputs], args[AT.blocks]
    column, gradient_column = _columns_bytes(form, inputs, outputs)
    group_bytes = _group_bytes(form, inputs, outputs)
    gradients = ring + compiled_plane(form) * column
    step = form.points_y * cover(inputs, INPUTS) * cover(outputs, OUTPUTS) * VECTOR_BYTES
    for number in range(compiled_plane(form)):
        column_sums(
            form, groups, first, (inputs, outputs),
            (ring + number * column, group_bytes, inputs * VECTOR_BYTES),
            (gradients + number * gradient_column, group_bytes, outputs * VECTOR_BYTES),
            points, each, sums + number * step,
        )  # fmt: skip


@inlined
def _march(
    form: Any, args: Any, table: int, groups: int, scratch: int, each: int, sums: int
) -> None:
    """Add the products of all tiles along y of some groups."""
    inputs, outputs = args[AT.inputs], args[AT.blocks]
    column, gradient_column = _columns_bytes(form, inputs, outputs)
    group_bytes = _group_bytes(form, inputs, outputs)
    spare, points = scratch, scratch + _spare(form.points_z) * VECTOR_BYTES
    ring = points + GROUPS * each
    gradients = ring + compiled_plane(form) * column
    for tile in range(args[AT.y0], args[AT.y1]):
        y = tile * form.new_y
        first = y % form.points_y
        new = form.points_y if tile == args[AT.y0] else form.new_y
        for row in range(form.points_y - new, form.points_y):
            here = ring + (first + row) % form.points_y * inputs * VECTOR_BYTES
            rows_of_voxels(
                form,
                table,
                groups,
                _source(args),
                inputs,
                y + row,
                spare,
                here,
                column,
                group_bytes,
            )
        for row in range(form.new_y):
            here = gradients + row * outputs * VECTOR_BYTES
            rows_of_gradients(
                form, table, groups, _gradient(args), outputs, y + row, spare, here,
                gradient_column, group_bytes,
            )  # fmt: skip
        _multiply(form, args, groups, first, ring, points, each, sums)


@inlined
def _source(args: Any) -> Any:
    """The source as an image (`planar_units`)."""
    return (
        args[AT.source], args[AT.source_block], args[AT.source_z], args[AT.source_y],
        args[AT.source_size_z], args[AT.source_size_y], args[AT.source_size_x],
        args[AT.before_z], args[AT.before_y], args[AT.before_x],
    )  # fmt: skip


@inlined
def _gradient(args: Any) -> Any:
    return (
        args[AT.gradient], args[AT.gradient_block], args[AT.gradient_z], args[AT.gradient_y],
        args[AT.gradient_size_z], args[AT.gradient_size_y], args[AT.gradient_size_x], 0, 0, 0,
    )  # fmt: skip


@inlined
def taps_of_pairs(
    form: Any,
    inputs: int,
    outputs: int,
    sums: int,
    cube: int,
    target: int,
    width: int,
    flipped: bool,
) -> None:
    """Transform the sums of all pairs of channels to packed filter gradients.

    `flipped`: sums are of the gradient's points with values, so that its channels, here `inputs`, are the filters'
    outputs, and taps come in reverse.
    """
    rows, blocks = cover(inputs, INPUTS), cover(outputs, OUTPUTS)
    plane_points = form.points_x * form.points_y
    taps_of_plane = form.taps_y * form.taps_x
    taps = form.taps_z * taps_of_plane
    made = cube + form.points_z * plane_points * VECTOR_BYTES
    packed, step = floats(target), rows * blocks * VECTOR_BYTES
    for number in range((outputs if flipped else inputs) * taps * width):
        packed[number] = 0.0
    for pairs in range(rows * blocks):
        here = sums + pairs * VECTOR_BYTES
        # Points are [z][x][y].
        for number in range(plane_points):
            into = cube + number * VECTOR_BYTES
            filter_depth(
                form, here + number * step, plane_points * step, into, plane_points * VECTOR_BYTES
            )
        for z in range(form.taps_z):
            start = cube + z * plane_points * VECTOR_BYTES
            into = made + z * taps_of_plane * VECTOR_BYTES
            along_x = form.points_y * VECTOR_BYTES
            filter_plane(form, start, VECTOR_BYTES, along_x, into, VECTOR_BYTES)
        found, first, last = floats(made), pairs // blocks * INPUTS, pairs % blocks * OUTPUTS
        for source in range(first, min(inputs, first + INPUTS)):
            for tap in range(taps):
                for output in range(last, min(outputs, last + OUTPUTS)):
                    lane = tap * LANES + (source - first) * OUTPUTS + output - last
                    if flipped:
                        packed[(output * taps + taps - 1 - tap) * width + source] = found[lane]
                    else:
                        packed[(source * taps + tap) * width + output] = found[lane]


def _planar_gradient(taps: Triple) -> Kernel:
    """Return the kernel for filters of so many taps along z, y, x."""
    form = FORMS[taps]

    @kernel(AT, name=f"winograd_planar_gradient{name_of(taps)}")
    def winograd_planar_gradient(args: Any, worker: int) -> None:
        """Filter gradients, summed over some tiles. Words: see the module."""
        table = args[AT.scratch] + 4 * worker * args[AT.scratch_worker]
        inputs, outputs = args[AT.inputs], args[AT.blocks]
        rows, blocks = cover(inputs, INPUTS), cover(outputs, OUTPUTS)
        each = (rows * INPUTS + blocks * OUTPUTS) * form.points_y * VECTOR_BYTES
        work = table + TABLE_BYTES
        points = work + _spare(form.points_z) * VECTOR_BYTES
        cube = compiled_plane(form) * form.points_y
        sums = points + GROUPS * (each + _group_bytes(form, inputs, outputs))
        # Channels that fill up a block of pairs stay zeros.
        _clear(points, GROUPS * each // VECTOR_BYTES)
        _clear(sums, cube * rows * blocks)
        most = max(1, min(GROUPS, ROOM // _group_bytes(form, inputs, outputs)))
        sizes = args[AT.gradient_size_z], args[AT.gradient_size_x]
        along_x, groups, count = cover(sizes[1], LANES), 0, 0
        total = (args[AT.z1] - args[AT.z0]) * along_x
        for number in range(total):
            z, x = (args[AT.z0] + number // along_x) * form.new_z, number % along_x * LANES
            last = number == total - 1
            groups, count = dealt(form, table, groups, count, _source(args), sizes, z, x, last)
            if groups == most or (groups and last):
                _march(form, args, table, groups, work, each, sums)
                groups = 0
        behind = sums + cube * rows * blocks * VECTOR_BYTES
        taps_of_pairs(form, inputs, outputs, sums, behind, args[AT.target], args[AT.width], False)

    return winograd_planar_gradient


WINOGRAD_PLANAR_GRADIENT = {taps: _planar_gradient(taps) for taps in PLANAR}
"""By the taps of filters along z, y, x, of which those along x are three."""
