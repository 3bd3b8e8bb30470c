"""Means over all voxels of a channel block: sums of parts, and the mean at every voxel.

A part leaves LANES float64, the sums of its lanes. They are added in the order of the parts, so bits depend on the
parts alone. Words as in `simd.rows`; `length` counts floats of a row, whole voxels of LANES.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.memory import doubles, floats
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import load, splat, store, store_doubles, to_doubles, zero_doubles

RUN = 32
"""Voxels of a row whose sums are of float32, before they are added in float64."""

LANE_SUMS = words("source source_z source_y leaf planes rows length")
SPREAD = words("leaves parts voxels target target_z target_y planes rows length")


@kernel(LANE_SUMS)
def lane_sums(args: Any, worker: int) -> None:
    """Write the sum of each lane over a part, LANES float64 at `leaf`."""
    at = LANE_SUMS
    sums = zero_doubles()
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            source = args[at.source] + 4 * (z * args[at.source_z] + y * args[at.source_y])
            for x in range(0, args[at.length], RUN * LANES):
                few = splat(0.0)
                for i in range(4 * x, 4 * min(x + RUN * LANES, args[at.length]), VECTOR_BYTES):
                    few = few + load(source + i)
                sums = sums + to_doubles(few)
    store_doubles(args[at.leaf], sums)


@kernel(SPREAD)
def spread_mean(args: Any, worker: int) -> None:
    """Write the mean of each lane, the sum of `parts` leaves over `voxels`, at every voxel of these rows."""
    at = SPREAD
    leaves, first = doubles(args[at.leaves]), floats(args[at.target])
    for lane in range(LANES):
        total = leaves[lane]
        for part in range(1, args[at.parts]):
            total += leaves[part * LANES + lane]
        first[lane] = np.float32(total / args[at.voxels])
    mean = load(args[at.target])
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            target = args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y])
            for i in range(0, 4 * args[at.length], VECTOR_BYTES):
                store(target + i, mean)
