"""Whole numbers in kernels."""

from __future__ import annotations

from znnpy_kernels.machine.inlining import inlined


@inlined
def cover(whole: int, part: int) -> int:
    """Parts that hold a whole: the quotient, rounded up."""
    return (whole + part - 1) // part
