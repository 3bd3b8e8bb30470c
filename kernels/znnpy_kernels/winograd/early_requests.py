"""Asks for what comes next while products run, which need memory little themselves.

A turn of a march sees new rows of voxels and makes as many of outputs, one row of all tiles and blocks after the
other. Products come before, in as many turns as there are points and pairs of vectors, each in parts of some tiles.
With each part goes a share of those rows, of the same tiles. Of weight gradients it is the tiles of the next group.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.winograd.line_transforms import asking_of
from znnpy_kernels.winograd.planes import AT

# Bytes of source and target that caches next to a core hold: these are not asked for, which takes 3 to 8 % of a pass.
NEAR_BYTES = 1 << 21
# Pieces of a row of tiles, of which a turn's share is a number; and unit of such numbers, so that no turn divides.
PIECES, TURN = 64, 1 << 16
_ask_to_read = asking_of((0, 2), new=True, level=2)
# Into the L1 cache, as x86 has no other request to write; most wait in the L2 cache by the time that they are made.
_ask_to_write = asking_of((0, 2), new=True, write=True)
_ask_for_plane = asking_of((1, 2), new=True, level=2)


@inlined
def turns_of(blocks: int) -> Any:
    """Return the turns of a point: one a pair of vectors of outputs, or one in all."""
    return max(1, blocks // 2)


@inlined
def pieces_a_turn(form: Any, args: Any) -> Any:
    """Return the pieces of rows to be seen and of rows to be made that go with a turn, times TURN.

    0: none, as feature maps come from caches next to a core, or tiles of several lattices share their lines.
    """
    inputs, blocks = cover(args[AT.inputs], LANES), args[AT.blocks]
    bytes_ = 4 * (inputs * args[AT.source_block] + blocks * args[AT.target_block])
    if bytes_ <= NEAR_BYTES or args[AT.dilation_y] * args[AT.dilation_x] > 1:
        return 0, 0
    turns = form.points_z * form.points_x * form.points_y * turns_of(blocks)
    unit = form.new_y * PIECES * TURN
    return inputs * unit // turns, blocks * unit // turns


@inlined
def ask(early: Any, turn: int, first: int, end: int) -> None:
    """Ask for the share of the rows of tiles first..end that goes with a turn.

    `early`: form, arguments, places of tiles, first rows to be seen and made, turns before, pieces of both; or None.
    """
    if early is not None:
        form, args, places, seen, made, before, pieces, outputs = early
        if pieces:
            turn += before
            low, high = turn * pieces // TURN, (turn + 1) * pieces // TURN
            _ask_for_seen(form, args, places, seen, low, high, first, end - first)
            low, high = turn * outputs // TURN, (turn + 1) * outputs // TURN
            _ask_for_made(form, args, places, made, low, high, first, end - first)


@inlined
def _ask_for_seen(
    form: Any, args: Any, places: Any, row: int, low: int, high: int, first: int, tiles: int
) -> None:
    # Columns that neighbours do not have.
    z = (form.points_z - form.new_z) * args[AT.dilation_z] - args[AT.before_z]
    x = (form.points_x - form.new_x) * args[AT.dilation_x] - args[AT.before_x]
    start = args[AT.source] + 4 * z * args[AT.source_z] + x * VECTOR_BYTES
    steps = 4 * args[AT.source_z] * args[AT.dilation_z], VECTOR_BYTES * args[AT.dilation_x]
    for number in range(low // PIECES, cover(high, PIECES)):
        block, y = number // form.new_y, row + number % form.new_y * args[AT.dilation_y]
        here = start + 4 * (block * args[AT.source_block] + y * args[AT.source_y])
        begin, end = _tiles(number, low, high, first, tiles)
        for tile in range(begin, end):
            place = 4 * places[2 * tile] * args[AT.source_z] + places[2 * tile + 1] * VECTOR_BYTES
            _ask_to_read(form, here + place, steps[0], steps[1])


@inlined
def _ask_for_made(
    form: Any, args: Any, places: Any, row: int, low: int, high: int, first: int, tiles: int
) -> None:
    step_z, step_x = 4 * args[AT.target_z] * args[AT.dilation_z], VECTOR_BYTES * args[AT.dilation_x]
    value_z = 4 * args[AT.output_z] * args[AT.dilation_z]
    for number in range(low // PIECES, cover(high, PIECES)):
        block, y = number // form.new_y, row + number % form.new_y * args[AT.dilation_y]
        here = args[AT.target] + 4 * (block * args[AT.target_block] + y * args[AT.target_y])
        value = args[AT.output] + 4 * (block * args[AT.output_block] + y * args[AT.output_y])
        begin, end = _tiles(number, low, high, first, tiles)
        for tile in range(begin, end):
            z, x = 4 * places[2 * tile], places[2 * tile + 1] * VECTOR_BYTES
            _ask_to_write(form, here + z * args[AT.target_z] + x, step_z, step_x)
            if args[AT.output]:
                _ask_to_read(form, value + z * args[AT.output_z] + x, value_z, step_x)


@inlined
def _tiles(number: int, low: int, high: int, first: int, tiles: int) -> Any:
    """Return which of some tiles pieces low..high of all rows have of row `number`."""
    begin, end = max(low - number * PIECES, 0), min(high - number * PIECES, PIECES)
    return first + begin * tiles // PIECES, first + end * tiles // PIECES


@inlined
def ask_for_tiles(
    form: Any,
    start: int,
    block: int,
    rows: Any,
    dilation: Any,
    places: Any,
    count: int,
    low: int,
    high: int,
) -> None:
    """Ask for the new voxels of tiles low..high of all blocks, `count` a block, into the L2 cache.

    `places`: z, y, x of each, whose first voxels lie so far from `start`; `block`: bytes from block to block; `rows`:
    floats from voxel to voxel along z, y, x.
    """
    step_y, step_x = 4 * rows[1] * dilation[1], 4 * rows[2] * dilation[2]
    for number in range(low, high):
        tile, here = 3 * (number % count), start + number // count * block
        here += 4 * (
            places[tile] * rows[0] + places[tile + 1] * rows[1] + places[tile + 2] * rows[2]
        )
        for z in range(form.new_z):
            _ask_for_plane(form, here + 4 * z * rows[0] * dilation[0], step_y, step_x)
