"""Integer and float quotients for kernels."""

from __future__ import annotations

from znnpy_kernels.machine.inlining import inlined


@inlined
def cover(whole: int, part: int) -> int:
    """Return how many parts of size `part` cover `whole`: the quotient, rounded up."""
    # For positive `part`; exact in integers, where a float quotient would round.
    return (whole + part - 1) // part


@inlined
def quotient(a: float, b: float) -> float:
    """Return a / b without numba's check for zero, which would leave the kernel by an exception."""
    return a / b
