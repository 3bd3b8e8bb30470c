"""Gradient clipping by norm: sums of squares, the scale; and the check that all values are finite."""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import doubles, floats, longs
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import (
    any_lane,
    below,
    load,
    load_masked,
    splat,
    to_doubles,
    total,
    zero_doubles,
)


@inlined
def _square(value: Any) -> Any:
    wide = to_doubles(value)
    return wide * wide


SUM_OF_SQUARES = words("source length partial")


@kernel(SUM_OF_SQUARES)
def sum_of_squares(args: Any, worker: int) -> None:
    """Write the sum of `length` squared float32, added up in float64, as a float64 at `partial`."""
    at = SUM_OF_SQUARES
    # Two sums hide the latency, and are joined at the end.
    first, second = zero_doubles(), zero_doubles()
    pairs = args[at.length] - args[at.length] % (2 * LANES)
    for i in range(0, 4 * pairs, 8 * LANES):
        first = first + _square(load(args[at.source] + i))
        second = second + _square(load(args[at.source] + i + VECTOR_BYTES))
    for j in range(pairs, args[at.length], LANES):
        first = first + _square(load_masked(args[at.source] + 4 * j, below(args[at.length] - j)))
    doubles(args[at.partial])[0] = total(first + second)


CLIP_SCALE = words("partials count max_norm scale norm")


@kernel(CLIP_SCALE)
def clip_scale(args: Any, worker: int) -> None:
    """Write min(1, max_norm / (norm + 1e-6)) as one float32 at `scale`; norm = sqrt(sum of partials).

    The 1e-6 is PyTorch's (`clip_grad_norm_`). `max_norm`: address of one float64; `norm`: address for the norm as one
    float64, or 0. A NaN norm gives a NaN scale.
    """
    at = CLIP_SCALE
    squares = 0.0
    for i in range(args[at.count]):
        squares += doubles(args[at.partials])[i]
    norm = squares**0.5
    # At least as large leaves the gradient as it is; a NaN is not, and goes on to the parameters, where it is
    # found.
    scale = doubles(args[at.max_norm])[0] / (norm + 1e-6)
    floats(args[at.scale])[0] = 1.0 if scale >= 1.0 else scale
    if args[at.norm]:
        doubles(args[at.norm])[0] = norm


ALL_FINITE = words("source length flag")


@kernel(ALL_FINITE)
def all_finite(args: Any, worker: int) -> None:
    """Write int64 1 at `flag` if every float32 of the range is finite, else 0. One flag a task."""
    at = ALL_FINITE
    nothing = splat(0.0)
    full = args[at.length] - args[at.length] % LANES
    for i in range(0, 4 * full, VECTOR_BYTES):
        value = load(args[at.source] + i)
        # x - x is 0, or NaN for Inf and NaN: one sum collects all, and one comparison at the end decides.
        nothing = nothing + (value - value)
    if full < args[at.length]:
        value = load_masked(args[at.source] + 4 * full, below(args[at.length] - full))
        nothing = nothing + (value - value)
    longs(args[at.flag])[0] = 0 if any_lane(nothing != nothing) else 1
