"""Functions of flat arrays, called from Python without the GIL."""

from __future__ import annotations

from znnpy_kernels.machine.native import native
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.simd.vector_math import logistic
from znnpy_kernels.simd.vectors import below, load, load_masked, store, store_masked


@native("void(int64, int64, int64)")
def logistic_values(source: int, target: int, length: int) -> None:
    """Write target[i] = 1 / (1 + e^-source[i]) of float32 at byte addresses, which may be the same."""
    full = length - length % LANES
    for i in range(0, full, LANES):
        store(target + 4 * i, logistic(load(source + 4 * i)))
    if full < length:
        tail = below(length - full)
        store_masked(target + 4 * full, tail, logistic(load_masked(source + 4 * full, tail)))
