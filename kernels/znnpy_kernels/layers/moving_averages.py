"""Moves an exponential moving average towards values, both flat float32 ranges."""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.memory import doubles
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import below, fma, load, load_masked, splat, store, store_masked

AVERAGE = words("values average share length")


@kernel(AVERAGE)
def moving_average(args: Any, worker: int) -> None:
    """Add `share` times values minus average to the average, `length` floats of each.

    `share` is the address of one float64, 1 to begin with. Ranges may be cut anywhere: the result is bitwise the same.
    """
    at = AVERAGE
    share = doubles(args[at.share])[0]
    full = args[at.length] - args[at.length] % LANES
    for i in range(0, 4 * full, VECTOR_BYTES):
        average = load(args[at.average] + i)
        away = load(args[at.values] + i) - average
        store(args[at.average] + i, fma(away, splat(share), average))
    if full < args[at.length]:
        tail, i = below(args[at.length] - full), 4 * full
        average = load_masked(args[at.average] + i, tail)
        away = load_masked(args[at.values] + i, tail) - average
        store_masked(args[at.average] + i, tail, fma(away, splat(share), average))
