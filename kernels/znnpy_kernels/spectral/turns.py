"""The order of tiles along an axis: in turns, so that tiles that overlap are far apart in it.

Of tiles of `size` points, `step` apart, every (size / step, rounded up)-th are disjoint: they are a turn. The first
turn's tiles are numbered first, then the second's, and so on. A grid's numbers go through its places along z, y and x, x
fastest, each in turns; so all tiles that touch a voxel are numbered as if each axis were alone, and those of an earlier
turn along any axis come first.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined


def place_of(number: int, tiles: int, size: int, step: int) -> Any:
    """Return the turn of a tile along an axis by its number there, and its place: how many tiles lie before it."""
    # Quotients by hand, rounded up: plans call this as well, where no compiled helper can be called.
    turns, turn = -(-size // step), 0
    while number >= -(-(tiles - turn) // turns):
        number -= -(-(tiles - turn) // turns)
        turn += 1
    return turn, turn + number * turns


turn_of = inlined(place_of)
"""`place_of` for kernels."""


@inlined
def fresh(turn: int, place: int, tiles: int, size: int, step: int, count: int) -> Any:
    """Return from which of a tile's first `count` points along an axis on, and up to which, no earlier turn has any."""
    behind = cover(size, step) - turn
    # The tile before is of the turn before. Of those behind, the first of an earlier turn is of the first one.
    low = max(0, count - step) if turn else 0
    return low, min(count, behind * step) if turn and place + behind < tiles else count


@inlined
def grid_turns(number: int, tiles: Any, size: Any, step: Any) -> Any:
    """`turn_of` along z, y and x for a number in a grid of `tiles`: turns, and places."""
    row = number // tiles[2]
    z, y, x = (
        turn_of(row // tiles[1], tiles[0], size[0], step[0]),
        turn_of(row % tiles[1], tiles[1], size[1], step[1]),
        turn_of(number % tiles[2], tiles[2], size[2], step[2]),
    )
    return (z[0], y[0], x[0]), (z[1], y[1], x[1])
