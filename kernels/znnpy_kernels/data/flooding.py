"""Seeded watershed by flooding: voxels in order of height take the label that reaches them first."""

from __future__ import annotations

from typing import Any

from numba import int64

from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.memory import bytes_, floats, ints, longs
from znnpy_kernels.machine.native import native


@part
def _before(heights: Any, ages: Any, first: int, second: int) -> bool:
    """Return whether one entry of the heap is lower than another, or as low and earlier."""
    if heights[first] != heights[second]:
        return bool(heights[first] < heights[second])
    # Of equal heights the earlier: the flood then spreads evenly on plains.
    return bool(ages[first] < ages[second])


@part
def _swap(heights: Any, ages: Any, places: Any, first: int, second: int) -> None:
    heights[first], heights[second] = heights[second], heights[first]
    ages[first], ages[second] = ages[second], ages[first]
    places[first], places[second] = places[second], places[first]


@part
def _push(heights: Any, ages: Any, places: Any, last: int) -> None:
    """Let the entry `last` of a heap rise to its place."""
    child = last
    while child > 0:
        parent = (child - 1) >> 1
        if not _before(heights, ages, child, parent):
            break
        _swap(heights, ages, places, child, parent)
        child = parent


@part
def _pop(heights: Any, ages: Any, places: Any, last: int) -> None:
    """Move the least entry of a heap to `last`, the end of it, which the heap no longer counts."""
    # The caller finds the least entry behind the heap's end.
    _swap(heights, ages, places, 0, last)
    parent = least = 0
    while True:
        for child in range(2 * parent + 1, min(2 * parent + 3, last)):
            if _before(heights, ages, child, least):
                least = child
        if least == parent:
            break
        _swap(heights, ages, places, parent, least)
        parent = least


@native("void(int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def flood(
    height: int,
    inside: int,
    labels: int,
    depth: int,
    rows: int,
    columns: int,
    heights: int,
    ages: int,
    places: int,
) -> None:
    """Give each voxel that is `inside` and has no label that of the face neighbour that reaches it first.

    `height` float32, `inside` bytes, `labels` int32, all (depth, rows, columns); `heights` float32, `ages` and
    `places` int64: room for as many entries as voxels. The lowest voxel that was reached spreads next, of equal ones
    the earliest, and of seeds of one height the one that a binary heap gives, filled in their order.
    """
    level, free, label = floats(height), bytes_(inside), ints(labels)
    queued, age, place = floats(heights), longs(ages), longs(places)
    plane = rows * columns
    waiting = 0
    # Seeds with age 0, in order of voxels.
    for voxel in range(depth * plane):
        if label[voxel] != 0:
            queued[waiting], age[waiting], place[waiting] = level[voxel], 0, voxel
            _push(queued, age, place, waiting)
            waiting += 1
    # int64 from the start, or numba would type it anew within the loop.
    entered = int64(0)
    while waiting > 0:
        waiting -= 1
        _pop(queued, age, place, waiting)
        here, reached = place[waiting], queued[waiting]
        # Where a voxel lies, to know which neighbours exist.
        z, y, x = here // plane, here // columns % rows, here % columns
        for side in range(6):
            step, may = int64(0), False
            if side == 0:
                step, may = -plane, z > 0
            elif side == 1:
                step, may = -columns, y > 0
            elif side == 2:
                step, may = int64(-1), x > 0
            elif side == 3:
                step, may = int64(1), x < columns - 1
            elif side == 4:
                step, may = columns, y < rows - 1
            else:
                step, may = plane, z < depth - 1
            there = here + step
            if may and free[there] != 0 and label[there] == 0:
                entered += 1
                # Labelled when it enters the heap, not when it leaves: no voxel enters twice.
                label[there] = label[here]
                # At least the height that the flood had reached: it does not flow back down within its own
                # valley.
                queued[waiting] = max(level[there], reached)
                age[waiting], place[waiting] = entered, there
                _push(queued, age, place, waiting)
                waiting += 1
