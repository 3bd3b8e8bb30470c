"""Quotients in kernels."""

from __future__ import annotations

from znnpy_kernels.machine.inlining import inlined


@inlined
def cover(whole: int, part: int) -> int:
    """Parts that hold a whole: the quotient, rounded up."""
    return (whole + part - 1) // part


@inlined
def quotient(a: float, b: float) -> float:
    """a / b without the check for zero, which would leave the kernel by an exception."""
    return a / b
