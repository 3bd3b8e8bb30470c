"""Winograd's minimal filtering in three stages, for layers whose filters exceed the caches: read once a group of tiles.

    winograd_planes     voxels of some blocks to rows of planes, transformed along z and x
    winograd_columns    some of the 36 columns: transformed along y, multiplied with the filters, and back
    winograd_images     rows of outputs of some blocks, from their planes

A group of tiles is all those along z and x of its task and `rows` of them along y, of one lattice. What waits
between stages is [block][column][row][tile][lane]: 4 rows a tile along y, and before the columns two more, which
neighbours share. Values are those of `forward`, bit by bit.

Argument words of the first and last: those of `planes`, where y0 is the first tile along y, y1 is not read, and

    rows                        tiles along y, `dilation_y` apart
    planes                      what waits of the first block of this task

Of `winograd_columns`: addresses in bytes, 64-byte aligned; counts.

    source, target              what waits of the first block
    inputs, blocks              channels of the source; vectors of output channels
    filters                     of `filters`
    tiles, rows                 along z and x that begin inside; along y
    column0, column1            columns of this task
    scratch, scratch_worker     worker w owns `columns_floats` from w * scratch_worker on: [block][point][tile][lane]

Tasks of one stage may run concurrently if their blocks, or columns, are disjoint.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import longs
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.winograd import planes
from znnpy_kernels.winograd.line_transforms import NEW, PLANE, POINTS, source_depth, target_depth
from znnpy_kernels.winograd.planes import (
    LOOSE_BYTES,
    along_zx,
    clear_bias_gradient,
    finish,
    place,
    places_bytes,
    transform,
)
from znnpy_kernels.winograd.products import (
    compiled_odd_bytes,
    compiled_room,
    multiply,
    odd_bytes,
    room,
)
from znnpy_kernels.winograd.tiles import origin

AT = words(planes.AT, "rows planes")
COLUMNS = words(
    "source target inputs blocks filters tiles rows column0 column1 scratch scratch_worker"
)
SHARED = POINTS - NEW  # rows that a tile along y shares with the next


def waiting_floats(rows: int, tiles: int, *, seen: bool) -> int:
    """Floats of a block that wait before the columns, if `seen`, or behind them; `rows` tiles along y."""
    # Odd numbers of vectors from column to column, or columns would fall on one set of the caches.
    return PLANE * odd_bytes((NEW * rows + SHARED * seen) * tiles) // 4


def planes_floats(tiles: int) -> int:
    """Floats of scratch that each worker needs for planes of so many tiles along z and x."""
    return (LOOSE_BYTES + places_bytes(tiles)) // 4


def columns_floats(inputs: int, outputs: int, tiles: int) -> int:
    """Floats of scratch that each worker needs for the columns of so many tiles in all."""
    blocks: int = room(-(-inputs // LANES), -(-outputs // LANES))[0]
    return blocks * POINTS * odd_bytes(tiles) // 4


@inlined
def _placed(args: Any, places: Any) -> Any:
    """Note where all tiles along z and x begin that do so inside; return their number."""
    count = 0
    for number in range(along_zx(args)):
        count = place(args, number, places, count)
    return count


@kernel(AT)
def winograd_planes(args: Any, worker: int) -> None:
    """Voxels of some blocks, transformed along z and x. Words: see the module."""
    scratch = args[AT.scratch] + 4 * worker * args[AT.scratch_worker]
    places, y = longs(scratch + LOOSE_BYTES), origin(args[AT.y0], args[AT.dilation_y])
    count, rows = _placed(args, places), NEW * args[AT.rows] + SHARED
    column = compiled_odd_bytes(rows * count)
    # Blocks outside, rows within: voxels are read in the order of memory.
    for block in range(cover(args[AT.inputs], LANES)):
        for row in range(rows):
            slot = args[AT.planes] + block * PLANE * column + row * count * VECTOR_BYTES
            seen = y + row * args[AT.dilation_y]
            for tile in range(count):
                here = slot + tile * VECTOR_BYTES
                transform(args, block, places, tile, count, seen, scratch, here, column)


@kernel(COLUMNS)
def winograd_columns(args: Any, worker: int) -> None:
    """Some columns of planes times those of filters. Words: see the module."""
    at = COLUMNS
    points, inputs = args[at.scratch] + 4 * worker * args[at.scratch_worker], args[at.inputs]
    rows, tiles, blocks = args[at.rows], args[at.tiles], cover(inputs, LANES)
    _, start = compiled_room(blocks, args[at.blocks])
    row, total = tiles * VECTOR_BYTES, rows * tiles
    point = compiled_odd_bytes(total)
    before = compiled_odd_bytes((NEW * rows + SHARED) * tiles)
    behind = compiled_odd_bytes(NEW * rows * tiles)
    for number in range(args[at.column0], args[at.column1]):
        for block in range(blocks):
            source = args[at.source] + (block * PLANE + number) * before
            target = points + block * POINTS * point
            for tile in range(total):
                # Tiles along y begin NEW rows apart: `tile` counts a row's tiles, so NEW - 1 rows more for each
                # row before.
                here = source + tile * VECTOR_BYTES + tile // tiles * (NEW - 1) * row
                source_depth(here, 0, row, target + tile * VECTOR_BYTES, point)
        filters = args[at.filters] + number * POINTS * inputs * args[at.blocks] * VECTOR_BYTES
        multiply(inputs, args[at.blocks], total, filters, points, point, start)
        for block in range(args[at.blocks]):
            source = points + (start + block) * POINTS * point
            target = args[at.target] + (block * PLANE + number) * behind
            for tile in range(total):
                there = target + tile * VECTOR_BYTES + tile // tiles * (NEW - 1) * row
                target_depth(source + tile * VECTOR_BYTES, point, there, 0, row)


@kernel(AT)
def winograd_images(args: Any, worker: int) -> None:
    """Outputs of some blocks from their planes. Words: see the module."""
    clear_bias_gradient(args)
    scratch = args[AT.scratch] + 4 * worker * args[AT.scratch_worker]
    places, y = longs(scratch + LOOSE_BYTES), origin(args[AT.y0], args[AT.dilation_y])
    count, rows = _placed(args, places), NEW * args[AT.rows]
    column = compiled_odd_bytes(rows * count)
    for block in range(args[AT.blocks]):
        for row in range(rows):
            slot = args[AT.planes] + block * PLANE * column + row * count * VECTOR_BYTES
            made = y + row * args[AT.dilation_y]
            # Tiles may reach below the target: rows beyond are not finished.
            for tile in range(count if made < args[AT.target_size_y] else 0):
                here = slot + tile * VECTOR_BYTES
                finish(args, block, places, tile, made, scratch, here, column)
