"""One number for all lanes: a tied slope as the vector that activation functions read, and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.memory import floats
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.simd.vectors import splat, store

REPEAT = words("source target")
TOTAL = words("source target count")


@kernel(REPEAT)
def repeat_number(args: Any, worker: int) -> None:
    """Write the first float of the source to LANES floats of the target."""
    store(args[REPEAT.target], splat(floats(args[REPEAT.source])[0]))


@kernel(TOTAL)
def total_of_vectors(args: Any, worker: int) -> None:
    """Write the sum of `count` vectors, lane by lane and in their order, as the first of LANES floats; 0 elsewhere."""
    source, target = floats(args[TOTAL.source]), floats(args[TOTAL.target])
    found = 0.0
    for i in range(args[TOTAL.count] * LANES):
        found += float(source[i])
    for lane in range(LANES):
        target[lane] = np.float32(0.0)
    target[0] = np.float32(found)
