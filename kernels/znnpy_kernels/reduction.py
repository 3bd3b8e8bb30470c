"""Small sums in fixed order: partial bias gradients of many parts."""

from __future__ import annotations

from typing import Any

from znnpy_kernels.abi import kernel
from znnpy_kernels.memory import floats


@kernel("source", "target", "count", "length")
def sum_vectors(args: Any, worker: int) -> None:
    """target[j] = source[0][j] + source[1][j] + ..., added in that order; `length` floats each."""
    source, target = floats(args[0]), floats(args[1])
    for j in range(args[3]):
        target[j] = source[j]
    for i in range(1, args[2]):
        for j in range(args[3]):
            target[j] += source[i * args[3] + j]
