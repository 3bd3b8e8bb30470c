"""Frequencies of real tiles that are conjugates of others: products leave them out, ways back fill them in.

Where kx is 0, or half of an even number of points, the column of frequencies along z at -ky is that at ky, conjugate
and in reverse; transformed back along z it is the conjugate, point by point. So of two such columns the one behind
the middle of y is `mirrored`: it is neither multiplied nor transformed back. In tiles of one plane both are single
numbers of a line along y, which is filled in before it is transformed back.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import VECTOR_BYTES
from znnpy_kernels.simd.vectors import load, store


@inlined
def is_mirrored(frequency: int, rows: int, points: int) -> Any:
    """Whether a frequency is left out, of tiles of so many rows a plane and points a row."""
    row = points // 2 + 1
    kx = frequency % row
    return (kx == 0 or 2 * kx == points) and 2 * (frequency // row % rows) > rows


@inlined
def full_rows(rows: int) -> Any:
    """Return of how many rows of a plane, the first ones, no column is mirrored."""
    return rows // 2 + 1


@inlined
def inner_columns(points: int) -> Any:
    """Return the columns from kx = 1 on that are never mirrored."""
    return (points - 1) // 2


@inlined
def fill_mirrored(plane: int, rows: int, row: int) -> None:
    """Write conjugates to the mirrored numbers of one column of a plane, which lie `row` bytes apart."""
    for y in range(full_rows(rows), rows):
        source, target = plane + (rows - y) * row, plane + y * row
        store(target, load(source))
        store(target + VECTOR_BYTES, -load(source + VECTOR_BYTES))
