"""Sections of which only some rows and columns are kept, and the others interpolated between them."""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.memory import floats, longs
from znnpy_kernels.machine.native import native

FACTS = 6
"""int64 of a section: rows and columns that are kept, the addresses of their numbers (int64), and of matrices."""


@part
def _scaled(target: Any, first: int, count: int, source: Any, begin: int, factor: float) -> None:
    for i in range(count):
        target[first + i] += factor * source[begin + i]


@native("void(int64, int64, int64, int64, int64, int64, int64)")
def coarser_sections(
    target: int, source: int, sections: int, height: int, width: int, facts: int, room: int
) -> None:
    """Interpolate sections, float32 (sections, height, width), between voxels that are kept, within their range.

    `facts`: FACTS of each section; its matrices, float32, are (height, rows) and (columns, width). `room`: height times
    width float32.
    """
    for section in range(sections):
        own = longs(facts + 8 * FACTS * section)
        rows, columns, row, column = own[0], own[1], longs(own[2]), longs(own[3])
        down, across, wide = floats(own[4]), floats(own[5]), floats(room)
        place = 4 * section * height * width
        given, found = floats(source + place), floats(target + place)
        low = high = given[row[0] * width + column[0]]
        for j in range(rows):
            for x in range(width):
                wide[j * width + x] = 0
            for k in range(columns):
                value = given[row[j] * width + column[k]]
                low, high = min(low, value), max(high, value)
                _scaled(wide, j * width, width, across, k * width, value)
        for y in range(height):
            for x in range(width):
                found[y * width + x] = 0
            for j in range(rows):
                _scaled(found, y * width, width, wide, j * width, down[y * rows + j])
            for x in range(width):
                found[y * width + x] = min(max(found[y * width + x], low), high)
