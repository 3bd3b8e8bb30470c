"""Maxout: the largest of several channels at every voxel, and the gradient back to the winner.

Words as in `simd.rows`; `index` holds the number of the winner, a byte for each float, `index_z`, `index_y` its
strides in bytes. The first of equal values wins, and the first NaN. `length` counts floats, whole vectors.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.simd.vectors import (
    load,
    load_octets,
    select,
    select_octets,
    splat,
    splat_octet,
    store,
    store_octets,
)

LARGER = words(
    "source source_z source_y target target_z target_y index index_z index_y number planes rows length"
)


@inlined
def _larger_row(source: int, target: int, index: int, number: int, length: int) -> None:
    for i in range(0, length, LANES):
        best, value = load(target + 4 * i), load(source + 4 * i)
        # The first NaN wins: a later one does not replace it.
        take = (value > best) | ((value != value) & (best == best))
        store(target + 4 * i, select(take, value, best))
        if index:
            # The first source overwrites what the index held before.
            before = load_octets(index + i) if number > 1 else splat_octet(0)
            store_octets(index + i, select_octets(take, splat_octet(number), before))


@kernel(LARGER)
def larger_rows(args: Any, worker: int) -> None:
    """Write the larger of target and source to the target; note the winner unless `index` is 0.

    `number` counts sources; the target's values before the first source, number 1, have number 0.
    """
    at = LARGER
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            index = args[at.index]
            if index:
                index += z * args[at.index_z] + y * args[at.index_y]
            _larger_row(
                args[at.source] + 4 * (z * args[at.source_z] + y * args[at.source_y]),
                args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y]),
                index,
                args[at.number],
                args[at.length],
            )


@kernel(LARGER)
def winner_rows(args: Any, worker: int) -> None:
    """Write source where the number won, else 0."""
    at = LARGER
    number = splat_octet(args[at.number])
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            source = args[at.source] + 4 * (z * args[at.source_z] + y * args[at.source_y])
            target = args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y])
            index = args[at.index] + z * args[at.index_z] + y * args[at.index_y]
            for i in range(0, args[at.length], LANES):
                won = load_octets(index + i) == number
                store(target + 4 * i, select(won, load(source + 4 * i), splat(0.0)))
