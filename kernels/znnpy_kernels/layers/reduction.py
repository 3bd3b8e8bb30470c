"""Small sums in fixed order: partial bias gradients of many parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.memory import doubles, floats
from znnpy_kernels.simd.lanes import LANES

SUM_VECTORS = words("source target count length")


@kernel(SUM_VECTORS)
def sum_vectors(args: Any, worker: int) -> None:
    """target[j] = source[0][j] + source[1][j] + ..., added in that order; `length` floats each."""
    at = SUM_VECTORS
    source, target = floats(args[at.source]), floats(args[at.target])
    for j in range(args[at.length]):
        target[j] = source[j]
    for i in range(1, args[at.count]):
        for j in range(args[at.length]):
            target[j] += source[i * args[at.length] + j]


SUM_LANES = words("source target count step")


@kernel(SUM_LANES)
def sum_lanes(args: Any, worker: int) -> None:
    """target[0] = the sum of `count` vectors of LANES floats, `step` floats apart.

    Lane by lane first, then the lanes in order.
    """
    at = SUM_LANES
    source, target = floats(args[at.source]), floats(args[at.target])
    total = np.float32(0)
    for lane in range(LANES):
        lane_total = source[lane]
        for i in range(1, args[at.count]):
            lane_total += source[i * args[at.step] + lane]
        total += lane_total
    target[0] = total


ADD_DOUBLES = words("first second target length")


@kernel(ADD_DOUBLES)
def add_doubles(args: Any, worker: int) -> None:
    """target = first + second over one range of float64."""
    at = ADD_DOUBLES
    first, second, target = (
        doubles(args[at.first]),
        doubles(args[at.second]),
        doubles(args[at.target]),
    )
    for i in range(args[at.length]):
        target[i] = first[i] + second[i]
