"""What the next group of tiles of `lines` needs, asked for evenly while the products of a group run.

A group reads and writes runs of its tiles in some planes of each block: rows. A turn, a register block of products,
asks for as much of them, wherever that begins and ends in a row. So not more is under way at once than a core can
wait for, and transforms find what they need in the L2 cache.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import VECTOR_BYTES

TURN = 1 << 16
"""Of a row that a turn asks for: the unit of such shares."""
Rows: Any = namedtuple("Rows", "table written reading writing read write row")
"""Places of rows to be read, and from number `written` on of those to be written; the share of a row that a turn asks
for of either, in TURN, and in bytes; bytes of a row."""


@inlined
def nothing(table: Any, place: int) -> Any:
    """Rows of which nothing is asked for; `place`: what may be touched instead."""
    table[0] = place
    return Rows(table, 0, 0, 0, 0, 0, 0)


@inlined
def noted(
    table: Any, first: int, start: int, blocks: int, block: int, planes: Any, plane: int
) -> Any:
    """Note the rows of some blocks and planes low..high, from number `first` on; return the number behind them."""
    low, high = planes
    for number in range(blocks):
        for z in range(low, high):
            table[first] = start + number * block + z * plane
            first += 1
    return first


@inlined
def spread(table: Any, written: int, rows: int, count: int, turns: int) -> Any:
    """Rows of `count` tiles, of which those before number `written` are read, spread over so many turns."""
    table[rows] = table[0]  # of a pass that writes nothing
    reading, writing, row = (
        written * TURN // turns,
        (rows - written) * TURN // turns,
        count * VECTOR_BYTES,
    )
    return Rows(
        table,
        written,
        reading,
        writing,
        cover(reading * row, TURN),
        cover(writing * row, TURN),
        row,
    )


@inlined
def steps_of(rows: Any, loops: int) -> Any:
    """Bytes that each of so many loops of a turn asks for, to read and to write."""
    return rows.read // loops, rows.write // loops


@inlined
def asked_in(rows: Any, turn: int, steps: Any) -> Any:
    """What a turn asks for, as products are told (`asked_lines`)."""
    read, write = turn * rows.reading, turn * rows.writing
    return (
        rows.table[read // TURN] + read % TURN * rows.row // TURN,
        rows.table[rows.written + write // TURN] + write % TURN * rows.row // TURN,
        steps[0],
        steps[1],
    )
