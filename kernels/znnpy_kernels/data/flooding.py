"""Seeded watershed by flooding: voxels in order of height take the label that reaches them first.

Heights only rise, so voxels wait in buckets by height, each a list in order of entry; a heap orders those of one bucket
alone, which fit a cache, and voxels at the height that is reached follow in a list of their own. Which voxel is next
is no place in memory that a processor could guess: the neighbours of a whole bucket are asked for ahead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import int64, types
from numba.extending import intrinsic

from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.memory import floats, ints, longs
from znnpy_kernels.machine.native import native
from znnpy_kernels.simd.codegen import prefetch

BUCKETS = 1 << 16  # some hundred voxels of a tile each
NONE = -1  # the end of a list
# Of voxels that take no label, and of a frame of them, which spares asking where a volume ends.
CLOSED = -1


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


@part
def _bucket(height: float, lowest: float, scale: float) -> int:
    """Return the bucket of a height: of higher ones never a lower one, of what is no number the first."""
    share = (height - lowest) * scale
    bucket = int64(0)
    if share > 0:
        bucket = int64(share) if share < BUCKETS - 1 else int64(BUCKETS - 1)
    return bucket  # type: ignore[no-any-return]


@part
def _append(first: Any, last: Any, after: Any, bucket: int, voxel: int) -> None:
    after[voxel] = NONE
    if first[bucket] == NONE:
        first[bucket] = voxel
    else:
        after[last[bucket]] = voxel
    last[bucket] = voxel


@intrinsic
def _ask(typingctx: Any, address: Any) -> Any:
    """Ask for the cache line at an address."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> Any:
        prefetch(builder, args[0], write=False, level=2)
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@part
def _ask_around(labels: int, reached: int, voxel: int, row: int, plane: int) -> None:
    for step in (-plane, -row, 0, row, plane):
        _ask(labels + 4 * (voxel + step))
        _ask(reached + 4 * (voxel + step))


@part
def _has_open(label: Any, voxel: int, row: int, plane: int) -> bool:
    found = False
    for step in (-plane, -row, -1, 1, row, plane):
        found |= label[voxel + step] == 0
    return found


@native(
    "void(int64, int64, int64, int64, int64, float32, float32, int64, int64, int64, int64, int64)"
)
def flood(
    reached: int,
    labels: int,
    depth: int,
    rows: int,
    columns: int,
    lowest: float,
    scale: float,
    ends: int,
    following: int,
    heights: int,
    ages: int,
    places: int,
) -> None:
    """Give each voxel without a label that of the face neighbour that reaches it first.

    `reached` float32, the heights, which become those at which the flood came; `labels` int32, 0 for none, `CLOSED` for
    voxels that take none, as all of the frame must be; both (depth, rows, columns). The lowest voxel that was reached
    spreads next, of equal ones the earliest; seeds enter in order of voxels. Buckets are `scale` to a unit of height
    from `lowest` on. Room: `ends` int64 (2, BUCKETS), and a number a voxel: `heights` float32, `following`, `ages`,
    `places` int64.
    """
    rise, label, after = floats(reached), ints(labels), longs(following)
    first, last = longs(ends), longs(ends + 8 * BUCKETS)
    queued, age, place = floats(heights), longs(ages), longs(places)
    # int64 from the start, or numba would type them anew within the loop.
    plane, row, waiting, entered = int64(rows * columns), int64(columns), int64(0), int64(0)
    bucket, plain, end, here = int64(NONE), int64(NONE), int64(NONE), int64(NONE)
    for number in range(BUCKETS):
        first[number] = NONE
    for voxel in range(depth * plane):
        if label[voxel] > 0 and _has_open(label, voxel, row, plane):
            _append(first, last, after, _bucket(rise[voxel], lowest, scale), voxel)
    now = np.float32(-np.inf)
    while True:
        if waiting > 0 and (plain == NONE or queued[0] == now):
            # What is in the heap at this height came before the plain.
            waiting -= 1
            _pop(queued, age, place, waiting)
            here, now = place[waiting], queued[waiting]
        elif plain != NONE:
            here = plain
            plain = after[here]
        else:
            bucket += 1
            while bucket < BUCKETS and first[bucket] == NONE:
                bucket += 1
            if bucket == BUCKETS:
                break
            here = first[bucket]
            now = rise[here]
            while here != NONE and rise[here] == now:
                here = after[here]
            if here == NONE:
                # All of one height, as in maps of bytes: nothing to order.
                plain, end = first[bucket], last[bucket]
                continue
            here = first[bucket]
            while here != NONE:
                _ask_around(labels, reached, here, row, plane)
                queued[waiting], age[waiting], place[waiting] = rise[here], entered, here
                _push(queued, age, place, waiting)
                entered += 1
                waiting += 1
                here = after[here]
            continue
        for there in (here - plane, here - row, here - 1, here + 1, here + row, here + plane):
            if label[there] != 0:
                continue
            # Labelled when it enters, not when it leaves: no voxel enters twice.
            label[there] = label[here]
            # At least the height that the flood had reached: it does not flow back down within its own valley.
            if not rise[there] > now:
                rise[there] = now
                after[there] = NONE
                if plain == NONE:
                    plain = there
                else:
                    after[end] = there
                end = there
                continue
            above = _bucket(rise[there], lowest, scale)
            if above > bucket:
                _append(first, last, after, above, there)
            else:
                queued[waiting], age[waiting], place[waiting] = rise[there], entered, there
                _push(queued, age, place, waiting)
                entered += 1
                waiting += 1
