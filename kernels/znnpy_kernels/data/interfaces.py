"""Voxels beside which objects end: those that have a neighbour with another label."""

from __future__ import annotations

from typing import Any

from numba import uint8

from znnpy_kernels.machine.inlining import inlined, part
from znnpy_kernels.machine.memory import bytes_, ints, longs, shorts
from znnpy_kernels.machine.native import native


@inlined
def _differs(ids: Any, known: Any, x: int, other: int) -> Any:
    return uint8(ids[x] != ids[other]) & known[other]


@part
def _run(target: Any, ids: Any, known: Any, begin: int, end: int, before: Any, behind: Any) -> None:
    """Mark voxels, one after the other, by their neighbours: so far before and behind them along z, y and x."""
    for x in range(begin, end):
        along = _differs(ids, known, x, x - before[2]) | _differs(ids, known, x, x + behind[2])
        down = _differs(ids, known, x, x - before[1]) | _differs(ids, known, x, x + behind[1])
        deep = _differs(ids, known, x, x - before[0]) | _differs(ids, known, x, x + behind[0])
        target[x] = known[x] & (along | down | deep)


@part
def _marked(target: Any, ids: Any, known: Any, depth: int, height: int, width: int) -> None:
    plane = height * width
    for z in range(depth):
        # Voxels at a border are their own neighbours beyond it.
        front, back = plane if z > 0 else 0, plane if z < depth - 1 else 0
        for y in range(height):
            up, down = width if y > 0 else 0, width if y < height - 1 else 0
            here = z * plane + y * width
            last = here + width - 1
            after = 1 if width > 1 else 0
            _run(target, ids, known, here, here + 1, (front, up, 0), (back, down, after))
            _run(target, ids, known, here + 1, last, (front, up, 1), (back, down, 1))
            if width > 1:
                _run(target, ids, known, last, last + 1, (front, up, 1), (back, down, 0))


@native("void(int64, int64, int64, int64, int64, int64, int64)")
def mark_interfaces(
    target: int, ids: int, size: int, known: int, depth: int, height: int, width: int
) -> None:
    """Write which voxels of (depth, height, width) have a neighbour with another label: bytes, 0 or 1.

    `ids`: integers of `size` bytes, 1, 2, 4 or 8. `known`: bytes, 0 or 1; where it is 0, no label differs.
    """
    found, counted = bytes_(target), bytes_(known)
    if size == 1:
        _marked(found, bytes_(ids), counted, depth, height, width)
    elif size == 2:
        _marked(found, shorts(ids), counted, depth, height, width)
    elif size == 4:
        _marked(found, ints(ids), counted, depth, height, width)
    else:
        _marked(found, longs(ids), counted, depth, height, width)
