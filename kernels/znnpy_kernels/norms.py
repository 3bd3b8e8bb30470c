"""Norms of flat ranges: sums of squares, the scale that clips a gradient, a check for NaN."""

from __future__ import annotations

from typing import Any

from znnpy_kernels.abi import kernel
from znnpy_kernels.inlining import inlined
from znnpy_kernels.lanes import LANES
from znnpy_kernels.memory import doubles, float_argument, floats, longs
from znnpy_kernels.vectors import (
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


@kernel("source", "length", "partial")
def sum_of_squares(args: Any, worker: int) -> None:
    """Write the sum of `length` squared float32, added up in float64, as a float64 at `partial`."""
    first, second = zero_doubles(), zero_doubles()
    pairs = args[1] - args[1] % (2 * LANES)
    for i in range(0, 4 * pairs, 8 * LANES):
        first = first + _square(load(args[0] + i))
        second = second + _square(load(args[0] + i + 4 * LANES))
    for j in range(pairs, args[1], LANES):
        first = first + _square(load_masked(args[0] + 4 * j, below(args[1] - j)))
    doubles(args[2])[0] = total(first + second)


@kernel("partials", "count", "max_norm:float", "scale", "norm")
def clip_scale(args: Any, worker: int) -> None:
    """Write min(1, max_norm / (norm + 1e-6)) as one float32 at `scale`; norm = sqrt(sum of
    partials).

    `norm`: address for the norm as one float64, or 0. A NaN norm gives a NaN scale.
    """
    squares = 0.0
    for i in range(args[1]):
        squares += doubles(args[0])[i]
    norm = squares**0.5
    scale = float_argument(args[2]) / (norm + 1e-6)
    floats(args[3])[0] = 1.0 if scale >= 1.0 else scale
    if args[4]:
        doubles(args[4])[0] = norm


@kernel("source", "length", "flag")
def all_finite(args: Any, worker: int) -> None:
    """Write int64 1 at `flag` if every float32 of the range is finite, else 0. One flag a task."""
    nothing = splat(0.0)
    full = args[1] - args[1] % LANES
    for i in range(0, 4 * full, 4 * LANES):
        value = load(args[0] + i)
        nothing = nothing + (value - value)
    if full < args[1]:
        value = load_masked(args[0] + 4 * full, below(args[1] - full))
        nothing = nothing + (value - value)
    longs(args[2])[0] = 0 if any_lane(nothing != nothing) else 1
