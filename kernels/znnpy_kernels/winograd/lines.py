"""Filters of three taps along z and one along y and x, without padding along these: rows of tiles, one voxel wide.

A tile along x is a voxel, so tiles of a row lie side by side in the source, at their points and in the target, and what
is known of one is known of all: an address for each of six planes, and of four. Planes that lie outside are a row of
zeros, or one that nobody reads (docs/design/winograd.md, *Lines*). Rows come as they lie in memory, several as one
where they lie side by side; what the next tiles need is asked for by the products of these (`row_requests`), where all
that products need besides stays in caches.

`winograd_lines_back`: data gradient and weight gradient in one task. With `blocks` 0 and no bias gradient there are the
weight gradients alone.

Argument words: those of `both_gradients`, with `before_y`, `before_x` 0.

Tasks may run concurrently if their tiles, and `weights`, are disjoint. Scratch of a worker, `lines_floats`: places of
rows that are asked for, a row of zeros, one for what nobody reads, points of a group of tiles [block][point][tile] with
a place before them for products, points of values, sums [point][channel][block of the gradient].
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import Kernel, kernel
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import longs
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.winograd.both_gradients import AT, clear, taps_of
from znnpy_kernels.winograd.filters import compiled_point_bytes
from znnpy_kernels.winograd.forms import FORMS, NEW, POINTS, TAPS
from znnpy_kernels.winograd.gradient_lines import filter_depth
from znnpy_kernels.winograd.gradient_products import IMAGES, add_products
from znnpy_kernels.winograd.planes import clear_bias_gradient
from znnpy_kernels.winograd.products import ROWS, products, triple_of
from znnpy_kernels.winograd.row_requests import asked_in, noted, nothing, spread, steps_of
from znnpy_kernels.winograd.row_transforms import (
    POINT,
    WIDE,
    finish_outputs,
    source_points,
    value_points,
)
from znnpy_kernels.winograd.tiles import origin

TAPS_OF_LINES = (TAPS, 1, 1)
# From block to block: products of a point take the place of the point before.
BLOCK = (POINTS + 1) * POINT
VALUES = POINTS * POINT  # the same of values
_FORM = FORMS[TAPS_OF_LINES]
# Bytes of filters at all points, or of the sums of as many pairs of channels, that an L2 cache nearly holds: with more,
# both gradients go apart, and nothing is asked for, as it would be gone before it is read.
SUMS_BYTES = 1 << 19


def sums_bytes(inputs: int, outputs: int) -> int:
    """Bytes of the sums of a weight gradient between so many channels."""
    return POINTS * inputs * -(-outputs // LANES) * VECTOR_BYTES


def table_bytes(rows: int, blocks: int) -> Any:
    """Bytes of places of rows that are asked for: of the source, of values or signs, and of the target."""
    # Whole cache lines, as vectors follow.
    return -(-8 * (NEW * (rows + 2 * blocks) + 1) // 64) * 64


_table_bytes = inlined(table_bytes)


def lines_floats(inputs: int, outputs: int, *, weights: bool) -> int:
    """Floats of scratch that each worker needs between so many channels."""
    rows, blocks = -(-inputs // LANES), -(-outputs // LANES)
    bytes_ = table_bytes(rows, blocks) + 2 * POINT + max(rows, blocks) * BLOCK
    if weights:
        bytes_ += blocks * VALUES + sums_bytes(outputs, inputs)
    return int(bytes_) // 4


@inlined
def _together(left: int) -> Any:
    """Return how many of so many vectors make the next register block: three, but pairs where one would be left."""
    return 3 if left == 3 or left > 4 else min(left, 2)


@inlined
def _sum_products(args: Any, count: int, values: int, points: int, sums: int, early: Any) -> Any:
    """Add the products of values and gradients of all tiles of a group, point by point; return the turns."""
    channels, blocks, turn = args[AT.channels], cover(args[AT.inputs], LANES), 0
    row, steps = blocks * VECTOR_BYTES, steps_of(early, count)
    for point in range(POINTS):
        for block in range(cover(channels, LANES)):
            here = values + block * VALUES + point * POINT
            images = min(LANES, channels - block * LANES)
            target = sums + (point * channels + block * LANES) * row
            gradient, left = points + point * POINT, blocks
            while left:
                vectors = _together(left)
                # Constants, as code is made for each number of vectors.
                if vectors == 3:
                    turn = _add(3, here, gradient, count, target, row, images, early, turn, steps)
                elif vectors == 2:
                    turn = _add(2, here, gradient, count, target, row, images, early, turn, steps)
                else:
                    turn = _add(1, here, gradient, count, target, row, images, early, turn, steps)
                left -= vectors
                gradient, target = gradient + vectors * BLOCK, target + vectors * VECTOR_BYTES
    return turn


@inlined
def _add(
    vectors: Any,
    here: int,
    gradient: int,
    count: int,
    target: int,
    row: int,
    images: int,
    early: Any,
    turn: int,
    steps: Any,
) -> Any:
    """Add the products of a block of images with some vectors of gradients; return the next turn."""
    parts, first = cover(images, IMAGES[vectors - 1]), 0
    for part in range(parts):
        many = images * (part + 1) // parts - first
        add_products(
            vectors, here + 4 * first, gradient, BLOCK, count, target + first * row, row, many,
            asked_in(early, turn + part, steps),
        )  # fmt: skip
        first += many
    return turn + parts


@inlined
def _multiply(args: Any, count: int, points: int, early: Any, turn: int) -> None:
    """Products of `count` tiles with all filters, each point's in the place of the point before."""
    inputs, outputs, filters = args[AT.inputs], args[AT.blocks], args[AT.filters]
    skipped = compiled_point_bytes(inputs, outputs) - inputs * outputs * VECTOR_BYTES
    blocks, last = cover(inputs, LANES), inputs - (cover(inputs, LANES) - 1) * LANES
    singles, pairs, triples = cover(count, ROWS[0]), cover(count, ROWS[1]), cover(count, ROWS[2])
    steps, triple = steps_of(early, inputs), triple_of(outputs)
    for number in range(POINTS):
        source = points + number * POINT
        target = source - POINT
        for _ in range(outputs // 2 - triple):
            for part in range(pairs):
                by, end = part * count // pairs, (part + 1) * count // pairs
                here, there = source + by * VECTOR_BYTES, target + by * VECTOR_BYTES
                asked = asked_in(early, turn + part, steps)
                products(2, here, BLOCK, filters, blocks, last, there, BLOCK, end - by, asked)
            turn += pairs
            filters += 2 * inputs * VECTOR_BYTES
            target += 2 * BLOCK
        if triple:
            for part in range(triples):
                by, end = part * count // triples, (part + 1) * count // triples
                here, there = source + by * VECTOR_BYTES, target + by * VECTOR_BYTES
                asked = asked_in(early, turn + part, steps)
                products(3, here, BLOCK, filters, blocks, last, there, BLOCK, end - by, asked)
            turn += triples
            filters += 3 * inputs * VECTOR_BYTES
        elif outputs % 2:
            for part in range(singles):
                by, end = part * count // singles, (part + 1) * count // singles
                here, there = source + by * VECTOR_BYTES, target + by * VECTOR_BYTES
                asked = asked_in(early, turn + part, steps)
                products(1, here, BLOCK, filters, blocks, last, there, BLOCK, end - by, asked)
            turn += singles
            filters += inputs * VECTOR_BYTES
        filters += skipped


@inlined
def _turns(args: Any, count: int, weights: bool) -> Any:
    """Register blocks of products of a group; at least, where the last channels fill no block."""
    outputs, blocks = args[AT.blocks], cover(args[AT.inputs], LANES)
    triple = triple_of(outputs)
    turns = (outputs // 2 - triple) * cover(count, ROWS[1]) + triple * cover(count, ROWS[2])
    turns += (outputs % 2 - triple) * cover(count, ROWS[0])
    if weights:
        left = blocks
        while left:
            vectors = _together(left)
            turns += cover(args[AT.channels], LANES) * cover(LANES, IMAGES[vectors - 1])
            left -= vectors
    return POINTS * turns


@inlined
def _filters(source: int, step: int, target: int, target_step: int, spare: int) -> None:
    filter_depth(_FORM, source, step, target, target_step)


_to_taps = taps_of(_filters, TAPS)


@inlined
def _asked(args: Any, run: Any, x: int, count: int, turns: int, table: Any, weights: bool) -> Any:
    """What the turns of a group ask for: rows of `count` tiles from x on."""
    places, steps, (first, end), made = run
    inputs, outputs, by = cover(args[AT.inputs], LANES), args[AT.blocks], x * VECTOR_BYTES
    # The first two planes are those of the tile before along z.
    seen = max(first, POINTS - NEW), min(end, POINTS)
    last = noted(table, 0, places[0] + by, inputs, 4 * args[AT.source_block], seen, steps[0])
    if weights:
        # Where outputs take the place of values, these are there when they are written.
        outputs = 0 if places[3] == places[1] else outputs
        blocks, block = cover(args[AT.channels], LANES), 4 * args[AT.values_block]
        last = noted(table, last, places[3] + by, blocks, block, (0, made), steps[3])
    elif args[AT.output]:
        block = 4 * args[AT.output_block]
        last = noted(table, last, places[2] + by, outputs, block, (0, made), steps[2])
    block = 4 * args[AT.target_block]
    rows = noted(table, last, places[1] + by, outputs, block, (0, made), steps[1])
    return spread(table, last, rows, count, turns)


@inlined
def _group(args: Any, run: Any, x: int, count: int, early: Any, room: Any, weights: bool) -> None:
    """Compute tiles of a row, `count` from x on."""
    places, steps, (first, end), made = run
    zeros, points, values, sums = room
    blocks, outputs, by, turn = cover(args[AT.inputs], LANES), args[AT.blocks], x * VECTOR_BYTES, 0
    for block in range(blocks):
        from_, into = places[0] + by + 4 * block * args[AT.source_block], points + block * BLOCK
        source_points(from_, steps[0], first, end, zeros, into + POINT, count)
    if weights:
        for block in range(cover(args[AT.channels], LANES)):
            from_, into = (
                places[3] + by + 4 * block * args[AT.values_block],
                values + block * VALUES,
            )
            value_points(from_, steps[3], 0, made, zeros, into, count)
        turn = _sum_products(args, count, values, points + POINT, sums, early)
    _multiply(args, count, points + POINT, early, turn)
    for block in range(outputs):
        totals = args[AT.bias_gradient]
        finish_outputs(
            args, args[AT.bias] + block * VECTOR_BYTES, totals + block * VECTOR_BYTES if totals else 0,
            points + block * BLOCK, places[1] + by + 4 * block * args[AT.target_block], steps[1], made,
            zeros + POINT, places[2] + by + 4 * block * args[AT.output_block], steps[2], zeros, count,
        )  # fmt: skip


@inlined
def _run_of(args: Any, z: int, y: int) -> Any:
    """First tile of a row, in source, target, output and values, bytes from plane to plane, and planes that exist.

    Of the source from the tile's first plane on, low..high; of the target so many.
    """
    dilation, before = args[AT.dilation_z], z - args[AT.before_z]
    places = (
        args[AT.source] + 4 * (before * args[AT.source_z] + y * args[AT.source_y]),
        args[AT.target] + 4 * (z * args[AT.target_z] + y * args[AT.target_y]),
        args[AT.output] + 4 * (z * args[AT.output_z] + y * args[AT.output_y]),
        args[AT.values] + 4 * (z * args[AT.values_z] + y * args[AT.values_y]),
    )
    steps = (
        4 * args[AT.source_z] * dilation,
        4 * args[AT.target_z] * dilation,
        4 * args[AT.output_z] * dilation,
        4 * args[AT.values_z] * dilation,
    )
    seen = max(0, cover(-before, dilation)), cover(args[AT.source_size_z] - before, dilation)
    return places, steps, seen, min(NEW, cover(args[AT.target_size_z] - z, dilation))


@inlined
def _side_by_side(args: Any, weights: bool) -> Any:
    """Whether rows follow each other without a gap."""
    row = args[AT.target_size_x] * LANES
    same = args[AT.source_y] == row and args[AT.target_y] == row
    same = same and (args[AT.output] == 0 or args[AT.output_y] == row)
    return same and (not weights or args[AT.values_y] == row)


@inlined
def _lines(args: Any, scratch: int, weights: bool) -> None:
    clear_bias_gradient(args)
    inputs, outputs = cover(args[AT.inputs], LANES), args[AT.blocks]
    channels = cover(args[AT.channels], LANES)
    table, zeros = longs(scratch), scratch + _table_bytes(inputs, max(outputs, channels))
    points = zeros + 2 * POINT
    values = points + max(inputs, outputs) * BLOCK
    sums = values + channels * VALUES
    room = zeros, points, values, sums
    clear(zeros, POINT // VECTOR_BYTES)
    if weights:
        clear(sums, POINTS * args[AT.channels] * inputs)
    asks = POINTS * args[AT.inputs] * max(outputs, channels) * VECTOR_BYTES <= SUMS_BYTES
    width, rows = args[AT.target_size_x], args[AT.y1] - args[AT.y0]
    if _side_by_side(args, weights):
        width, rows = rows * width, 1
    groups = cover(width, WIDE)
    for tile in range(args[AT.z0], args[AT.z1]):
        z = origin(tile, args[AT.dilation_z], NEW)
        if z < args[AT.target_size_z]:
            for y in range(args[AT.y0], args[AT.y0] + rows):
                run = _run_of(args, z, y)
                for group in range(groups):
                    x, end = group * width // groups, (group + 1) * width // groups
                    early, after = nothing(table, zeros), (group + 2) * width // groups
                    if asks and group + 1 < groups:
                        turns = _turns(args, end - x, weights)
                        early = _asked(args, run, end, after - end, turns, table, weights)
                    _group(args, run, x, end - x, early, room, weights)
    if weights:
        _to_taps(args, sums, 0)


def _lines_kernel(name: str, weights: bool) -> Kernel:
    @kernel(AT, name=name)
    def lines(args: Any, worker: int) -> None:
        """Correlation of channels with lines of taps, and the weight gradient in passing. Words: see the module."""
        _lines(args, args[AT.scratch] + 4 * worker * args[AT.scratch_worker], weights)

    return lines


winograd_lines = _lines_kernel("winograd_lines", False)
winograd_lines_back = _lines_kernel("winograd_lines_back", True)
