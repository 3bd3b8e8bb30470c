"""Exact sums of small integers and of their squares, for mean and standard deviation."""

from __future__ import annotations

from typing import Any

from numba import uint32, uint64

from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.memory import bytes_, longs, shorts
from znnpy_kernels.machine.native import native

RUN = 1 << 16
"""Bytes whose squares add up to less than 2^32: 255^2 each."""


@part
def _byte_run(source: int, first: int, last: int) -> Any:
    """Return (sum, sum of squares) of bytes first..last, RUN at most."""
    values = bytes_(source)
    total = squares = uint32(0)
    # uint32 keeps twice as many lanes in a vector as uint64.
    for i in range(first, last):
        value = uint32(values[i])
        total = uint32(total + value)
        squares = uint32(squares + uint32(value * value))
    return total, squares


@native("void(int64, int64, int64)")
def byte_sums(source: int, length: int, target: int) -> None:
    """Add the sum and the sum of squares of uint8 to target[0], target[1] (int64); up to 2^47 values."""
    for first in range(0, length, RUN):
        total, squares = _byte_run(source, first, min(first + RUN, length))
        longs(target)[0] += total
        longs(target)[1] += squares


@native("void(int64, int64, int64)")
def short_sums(source: int, length: int, target: int) -> None:
    """Add the same of uint16; up to 2^31 values."""
    values = shorts(source)
    # uint64 throughout: a square alone takes 32 bits.
    total = squares = uint64(0)
    for i in range(length):
        value = uint64(values[i])
        total += value
        squares += value * value
    longs(target)[0] += total
    longs(target)[1] += squares
