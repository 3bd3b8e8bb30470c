"""The order of tiles in a grid: in turns, so that tiles that overlap are far apart in it.

Of tiles of `size` points, `step` apart along an axis, every (size / step, rounded up)-th are disjoint: they are a
turn of that axis. Numbers go through a grid as [turn z][z][turn y][turn x][y][x]: planes of tiles one after the other,
so that caches keep what the turns of a plane come back to. Of all tiles that touch a voxel no two have the same turns,
and the first has the least turn along each axis.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined


def place_of(number: int, tiles: Any, size: Any, step: Any) -> Any:
    """Return the turns of a tile along z, y, x, and its place: how many tiles of the grid lie before it along each."""
    apart = -(-size[0] // step[0]), -(-size[1] // step[1]), -(-size[2] // step[2])
    z, plane = 0, number // (tiles[1] * tiles[2])
    number -= plane * tiles[1] * tiles[2]
    # Quotients rounded up by hand: plans call this as well, where no compiled helper can be called.
    planes = (tiles[0] + apart[0] - 1) // apart[0]
    while plane >= planes:
        plane -= planes
        z += 1
        planes = (tiles[0] - z + apart[0] - 1) // apart[0]
    turn, count = -1, 0
    y = x = columns = 0
    while number >= count:
        number -= count
        turn += 1
        y, x = turn // apart[2], turn % apart[2]
        columns = (tiles[2] - x + apart[2] - 1) // apart[2]
        count = (tiles[1] - y + apart[1] - 1) // apart[1] * columns
    return (z, y, x), (
        z + plane * apart[0],
        y + number // columns * apart[1],
        x + number % columns * apart[2],
    )


turns_of = inlined(place_of)
"""`place_of` for kernels."""


@inlined
def fresh(turn: int, place: int, tiles: int, size: int, step: int, count: int) -> Any:
    """Return from which of a tile's first `count` points along an axis on, and up to which, no earlier turn has any.

    Never an end before the begin: where tiles overlap by more than a step, those of earlier turns may share all points.
    """
    behind = cover(size, step) - turn
    # The tile before is of the turn before. Of those behind, the first of an earlier turn is of the first one.
    low = max(0, count - step) if turn else 0
    high = min(count, behind * step) if turn and place + behind < tiles else count
    return low, max(low, high)
