"""Small sums in fixed order: partial bias gradients of many parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from znnpy_kernels.abi import kernel
from znnpy_kernels.lanes import LANES
from znnpy_kernels.memory import floats


@kernel("source", "target", "count", "length")
def sum_vectors(args: Any, worker: int) -> None:
    """target[j] = source[0][j] + source[1][j] + ..., added in that order; `length` floats each."""
    source, target = floats(args[0]), floats(args[1])
    for j in range(args[3]):
        target[j] = source[j]
    for i in range(1, args[2]):
        for j in range(args[3]):
            target[j] += source[i * args[3] + j]


@kernel("source", "target", "count", "step")
def sum_lanes(args: Any, worker: int) -> None:
    """target[0] = the sum of `count` vectors of LANES floats, `step` floats apart.

    Lane by lane first, then the lanes in order.
    """
    source, target = floats(args[0]), floats(args[1])
    total = np.float32(0)
    for lane in range(LANES):
        lane_total = source[lane]
        for i in range(1, args[2]):
            lane_total += source[i * args[3] + lane]
        total += lane_total
    target[0] = total
