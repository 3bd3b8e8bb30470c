"""Winograd's minimal filtering in three stages, for layers whose filters exceed the caches: read once a group of tiles.

    winograd_planes     voxels of some blocks to rows of planes, transformed along z and x
    winograd_columns    some of the 36 columns: transformed along y, multiplied with the filters, and back
    winograd_images     rows of outputs of some blocks, from their planes

A group of tiles is all those along z and x of its task and `rows` of them along y, of one lattice. What waits
between stages is [block][column][row][tile][lane]: 4 rows a tile along y, and before the columns two more, which
neighbours share. Values are those of `forward`, bit by bit. Each is a family, of the forms of tiles (`forms`): with one
tap along an axis, columns are 6 in place of 36, or rows one a tile.

Argument words of the first and last: those of `planes`, where y0 is the first tile along y, y1 is not read, and

    rows                        tiles along y, `dilation_y` apart
    row0, row1                  rows of voxels of the group, of this task; of outputs for the last stage
    planes                      what waits of the first block of this task

Of `winograd_columns`: addresses in bytes, 64-byte aligned; counts.

    source, target              what waits of the first block
    inputs, blocks              channels of the source; vectors of output channels
    filters                     of `filters`
    block0, block1              vectors of output channels of this task, an even one first
    tiles, rows                 along z and x that begin inside; along y
    wide                        of these along x, in each layer of tiles along z
    lone_z, lone_y, lone_x      1: the last tiles along this axis see one voxel, their first, and zeros
    column0, column1            columns of this task
    scratch, scratch_worker     worker w owns `columns_floats` from w * scratch_worker on: [block][point][tile][lane]

Tasks of one stage may run concurrently if their blocks, rows or columns are disjoint; those that sum bias gradients of
one block take all of its rows.

*Lone voxels.* Zeros around a gradient of 4 k + 3 voxels leave one to its last tile along an axis, whose points are that
voxel at the place 0, and zeros at all others. Of such tiles only points that are not zero are multiplied.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import Kernel, kernel, words
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import longs
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import splat, store
from znnpy_kernels.winograd import planes
from znnpy_kernels.winograd.filters import compiled_point_bytes
from znnpy_kernels.winograd.forms import FORMS, Triple, name_of
from znnpy_kernels.winograd.line_transforms import source_depth, target_depth
from znnpy_kernels.winograd.planes import (
    along_zx,
    clear_bias_gradient,
    compiled_loose_bytes,
    compiled_plane,
    finish,
    loose_bytes,
    place,
    places_bytes,
    plane,
    transform,
)
from znnpy_kernels.winograd.products import (
    compiled_odd_bytes,
    compiled_room,
    multiply_far,
    odd_bytes,
    room,
)
from znnpy_kernels.winograd.tiles import origin

AT = words(planes.AT, "rows row0 row1 planes")
COLUMNS = words(
    "source target inputs blocks filters tiles rows wide lone_z lone_y lone_x column0 column1 block0 block1 "
    "scratch scratch_worker"
)


def waiting_floats(taps: Triple, rows: int, tiles: int, *, seen: bool) -> int:
    """Floats of a block that wait before the columns, if `seen`, or behind them; `rows` tiles along y."""
    form = FORMS[taps]
    # Odd numbers of vectors from column to column, or columns would fall on one set of the caches.
    shared = (form.points_y - form.new_y) * seen
    return int(plane(form)) * odd_bytes((form.new_y * rows + shared) * tiles) // 4


def planes_floats(taps: Triple, tiles: int) -> int:
    """Floats of scratch that each worker needs for planes of so many tiles along z and x."""
    return int(loose_bytes(FORMS[taps]) + places_bytes(tiles)) // 4


def columns_floats(taps: Triple, inputs: int, outputs: int, tiles: int) -> int:
    """Floats of scratch that each worker needs for the columns of so many tiles in all."""
    blocks = room(-(-inputs // LANES), -(-outputs // LANES))[0]
    return int(blocks * FORMS[taps].points_y * odd_bytes(tiles)) // 4


@inlined
def _placed(form: Any, args: Any, places: Any) -> Any:
    """Note where all tiles along z and x begin that do so inside; return their number."""
    count = 0
    for number in range(along_zx(form, args)):
        count = place(form, args, number, places, count)
    return count


@inlined
def seen_rows(form: Any, rows: int) -> Any:
    """Rows of voxels of so many tiles along y: neighbours share two."""
    return form.new_y * rows + form.points_y - form.new_y


def _planes(taps: Triple) -> Kernel:
    """Return the kernel of the first stage, for filters of so many taps."""
    form = FORMS[taps]

    @kernel(AT, name=f"winograd_planes{name_of(taps)}")
    def winograd_planes(args: Any, worker: int) -> None:
        """Voxels of some blocks, transformed along z and x. Words: see the module."""
        scratch = args[AT.scratch] + 4 * worker * args[AT.scratch_worker]
        places = longs(scratch + compiled_loose_bytes(form))
        y = origin(args[AT.y0], args[AT.dilation_y], form.new_y)
        count, rows = _placed(form, args, places), seen_rows(form, args[AT.rows])
        column = compiled_odd_bytes(rows * count)
        step = compiled_plane(form) * column
        # Blocks outside, rows within: voxels are read in the order of memory.
        for block in range(cover(args[AT.inputs], LANES)):
            for row in range(args[AT.row0], args[AT.row1]):
                slot = args[AT.planes] + block * step + row * count * VECTOR_BYTES
                seen = y + row * args[AT.dilation_y]
                for tile in range(count):
                    here = slot + tile * VECTOR_BYTES
                    transform(form, args, block, places, tile, count, seen, scratch, here, column)

    return winograd_planes


@inlined
def to_points(
    form: Any, source: int, tiles: int, rows: int, wide: int, taken: Any, target: int, point: int
) -> None:
    """Rows of one column and block, of `tiles` in layers of `wide`, to points of `rows` tiles along y.

    `taken`: layers of them, and tiles along x of each, that are taken; the others are not.
    """
    row = tiles * VECTOR_BYTES
    for y in range(rows):
        for layer in range(taken[0]):
            here = source + y * form.new_y * row + layer * wide * VECTOR_BYTES
            for _ in range(taken[1]):
                source_depth(form, here, 0, row, target, point)
                here, target = here + VECTOR_BYTES, target + VECTOR_BYTES


@inlined
def to_rows(
    form: Any, source: int, point: int, tiles: int, rows: int, wide: int, taken: Any, target: int
) -> None:
    """Points of one block back to rows of a column, along y, as `to_points` takes them; zeros where none were taken."""
    row = tiles * VECTOR_BYTES
    for y in range(rows):
        for tile in range(tiles):
            there = target + y * form.new_y * row + tile * VECTOR_BYTES
            if tile < taken[0] * wide and (taken[1] == wide or tile % wide < taken[1]):
                target_depth(form, source, point, there, 0, row)
                source += VECTOR_BYTES
            else:
                for made in range(form.new_y):
                    store(there + made * row, splat(0.0))


@inlined
def _multiplied(
    form: Any, args: Any, count: int, filters: int, step: int, points: int, point: int, start: int
) -> None:
    """Products of a column's points of `count` tiles a row; zeros where those of the last row are.

    `step`: bytes from point to point of the filters.
    """
    at, many, inputs, rows = COLUMNS, form.points_y, args[COLUMNS.inputs], args[COLUMNS.rows]
    outputs, block, lone = args[at.block1] - args[at.block0], many * point, args[at.lone_y]
    others, first = step - outputs * inputs * VECTOR_BYTES, 0
    while first < many:
        # The first point has all rows.
        last, total = (1, rows) if lone and first == 0 else (many, rows - lone)
        here, weights = points + first * point, filters + first * step
        multiply_far(
            last - first, inputs, outputs, total * count, weights, here, point, block, start * block, others, None
        )  # fmt: skip
        first = last
    if lone:
        for output in range(outputs):
            for number in range(1, many):
                made = points + (start + output) * block + number * point
                for tile in range((rows - 1) * count, rows * count):
                    store(made + tile * VECTOR_BYTES, splat(0.0))


def _columns(taps: Triple) -> Kernel:
    """Return the kernel of the second stage, for filters of so many taps."""
    form = FORMS[taps]

    @kernel(COLUMNS, name=f"winograd_columns{name_of(taps)}")
    def winograd_columns(args: Any, worker: int) -> None:
        """Some columns of planes times those of filters. Words: see the module."""
        at = COLUMNS
        points, inputs = args[at.scratch] + 4 * worker * args[at.scratch_worker], args[at.inputs]
        rows, tiles, blocks = args[at.rows], args[at.tiles], cover(inputs, LANES)
        first, outputs = args[at.block0], args[at.block1] - args[at.block0]
        _, start = compiled_room(blocks, outputs)
        # Filters of a point lie by pairs of vectors of outputs: those before the task's own, and all others.
        before_own = first * inputs * VECTOR_BYTES
        step = compiled_point_bytes(inputs, args[at.blocks])
        many, plane, wide = form.points_y, compiled_plane(form), args[at.wide]
        point = compiled_odd_bytes(rows * tiles)
        before = compiled_odd_bytes(seen_rows(form, rows) * tiles)
        behind = compiled_odd_bytes(form.new_y * rows * tiles)
        for number in range(args[at.column0], args[at.column1]):
            deep = tiles // wide - (args[at.lone_z] if number >= form.points_x else 0)
            taken = deep, wide - (args[at.lone_x] if number % form.points_x else 0)
            for block in range(blocks):
                source = args[at.source] + (block * plane + number) * before
                into = points + block * many * point
                to_points(form, source, tiles, rows, wide, taken, into, point)
            filters = args[at.filters] + number * many * step + before_own
            _multiplied(form, args, deep * taken[1], filters, step, points, point, start)
            for block in range(outputs):
                target = args[at.target] + ((first + block) * plane + number) * behind
                source = points + (start + block) * many * point
                to_rows(form, source, point, tiles, rows, wide, taken, target)

    return winograd_columns


def _images(taps: Triple) -> Kernel:
    """Return the kernel of the last stage, for filters of so many taps."""
    form = FORMS[taps]

    @kernel(AT, name=f"winograd_images{name_of(taps)}")
    def winograd_images(args: Any, worker: int) -> None:
        """Outputs of some blocks from their planes. Words: see the module."""
        clear_bias_gradient(args)
        scratch = args[AT.scratch] + 4 * worker * args[AT.scratch_worker]
        places = longs(scratch + compiled_loose_bytes(form))
        y = origin(args[AT.y0], args[AT.dilation_y], form.new_y)
        count, rows = _placed(form, args, places), form.new_y * args[AT.rows]
        column = compiled_odd_bytes(rows * count)
        step = compiled_plane(form) * column
        for block in range(args[AT.blocks]):
            for row in range(args[AT.row0], args[AT.row1]):
                slot = args[AT.planes] + block * step + row * count * VECTOR_BYTES
                made = y + row * args[AT.dilation_y]
                # Tiles may reach below the target: rows beyond are not finished.
                for tile in range(count if made < args[AT.target_size_y] else 0):
                    here = slot + tile * VECTOR_BYTES
                    finish(form, args, block, places, tile, count, made, scratch, here, column)

    return winograd_images


PLANES = {taps: _planes(taps) for taps in FORMS}
COLUMNS_OF = {taps: _columns(taps) for taps in FORMS}
IMAGES = {taps: _images(taps) for taps in FORMS}
"""Kernels of the stages by the taps of filters along z, y, x."""
