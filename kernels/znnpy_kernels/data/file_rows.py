"""Writes rows of a block to their places in a file: one system call each, without returning to Python."""

from __future__ import annotations

from numba import types

from znnpy_kernels.machine.native import native

# Not in `machine.native`, as only this needs it.
_pwrite = types.ExternalFunction(
    "pwrite", types.int64(types.intc, types.int64, types.int64, types.int64)
)


@native("int64(int64, int64, int64, int64[::1])")
def write_rows(file: int, data: int, size: int, places: object) -> int:
    """Write rows of `size` bytes, one after the other in memory at `data`, to offsets in a file.

    Stops at the first that is not written whole; how many were. Any number of threads may write to
    places of their own.
    """
    for row in range(len(places)):  # type: ignore[arg-type]
        # Less than asked for is a full disk or a signal: Python finds out which.
        if _pwrite(file, data + row * size, size, places[row]) != size:  # type: ignore[index]
            return row
    return len(places)  # type: ignore[arg-type]
