"""Products of the points of one column of planes, between tiles and filters."""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.winograd.lines import POINTS
from znnpy_kernels.winograd.products import ROWS, products


def odd_bytes(vectors: int) -> int:
    """A step over so many vectors: an odd number of lines, so that steps do not fall on one set of the caches."""
    return (vectors | 1) * VECTOR_BYTES


def room(inputs: int, outputs: int) -> Any:
    """Blocks of a point, and the first of its products: up to two may overwrite what they are made of."""
    return (max(inputs, outputs), 0) if outputs <= 2 else (inputs + outputs, inputs)


compiled_odd_bytes, compiled_room = inlined(odd_bytes), inlined(room)


@inlined
def multiply(
    inputs: int, outputs: int, count: int, filters: int, points: int, point: int, start: int
) -> None:
    """Products of `count` tiles with all filters, from block `start` on, in the place of the tiles or behind them.

    Points lie `point` bytes from each other, tiles side by side; `outputs` counts blocks.
    """
    block = POINTS * point
    blocks, last = cover(inputs, LANES), inputs - (cover(inputs, LANES) - 1) * LANES
    singles, pairs = cover(count, ROWS[0]), cover(count, ROWS[1])
    for number in range(POINTS):
        source = points + number * point
        target = source + start * block
        for _ in range(outputs // 2):
            for part in range(pairs):
                by, end = part * count // pairs, (part + 1) * count // pairs
                here, there = source + by * VECTOR_BYTES, target + by * VECTOR_BYTES
                products(2, here, block, filters, blocks, last, there, block, end - by)
            filters += 2 * inputs * VECTOR_BYTES
            target += 2 * block
        if outputs % 2:
            for part in range(singles):
                by, end = part * count // singles, (part + 1) * count // singles
                here, there = source + by * VECTOR_BYTES, target + by * VECTOR_BYTES
                products(1, here, block, filters, blocks, last, there, block, end - by)
            filters += inputs * VECTOR_BYTES
