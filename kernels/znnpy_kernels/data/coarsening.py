"""Images of which only some sections, rows and columns are kept, and the others interpolated between them."""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.inlining import inlined, part
from znnpy_kernels.machine.memory import floats, longs
from znnpy_kernels.machine.native import native
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import below, fma, load_masked, select, splat, store_masked

FACTS = 6
"""int64 of a section: rows and columns that are kept, the addresses of their numbers (int64), and of matrices."""
ROWS = 4  # of a product, beside two vectors: eight sums, which no CPU lacks registers for
NONE = 3e38  # no limit: about the largest float32


def coarser_room(sections: int, height: int, width: int) -> int:
    """Return the bytes of room that `coarser_image` needs, of which so many sections are kept, or 0."""
    return 4 * (sections + 2) * height * width


@inlined
def _clipped(value: Any, low: Any, high: Any) -> Any:
    value = select(value > low, value, low)
    return select(value < high, value, high)


@inlined
def _written(
    target: int, one: Any, two: Any, low: Any, high: Any, mask: Any, other: Any
) -> None:  # fmt: skip
    store_masked(target, mask, _clipped(one, low, high))
    store_masked(target + VECTOR_BYTES, other, _clipped(two, low, high))


@inlined
def _block(
    target: int, width: int, row: int, last: int, matrix: int, inner: int, source: int, low: Any, high: Any, mask: Any,
    other: Any,
) -> None:  # fmt: skip
    """Write two vectors of ROWS rows of a product; rows behind the last are the last again."""
    two, three = min(row + 1, last), min(row + 2, last)
    four = min(row + 3, last)
    a, b = floats(matrix + 4 * inner * row), floats(matrix + 4 * inner * two)
    c, d = floats(matrix + 4 * inner * three), floats(matrix + 4 * inner * four)
    a0 = a1 = b0 = b1 = c0 = c1 = d0 = d1 = splat(0.0)
    for k in range(inner):
        here = source + 4 * width * k
        near, far = load_masked(here, mask), load_masked(here + VECTOR_BYTES, other)
        by = splat(a[k])
        a0, a1 = fma(by, near, a0), fma(by, far, a1)
        by = splat(b[k])
        b0, b1 = fma(by, near, b0), fma(by, far, b1)
        by = splat(c[k])
        c0, c1 = fma(by, near, c0), fma(by, far, c1)
        by = splat(d[k])
        d0, d1 = fma(by, near, d0), fma(by, far, d1)
    _written(target + 4 * width * row, a0, a1, low, high, mask, other)
    _written(target + 4 * width * two, b0, b1, low, high, mask, other)
    _written(target + 4 * width * three, c0, c1, low, high, mask, other)
    _written(target + 4 * width * four, d0, d1, low, high, mask, other)


@part
def _product(
    target: int, rows: int, width: int, matrix: int, inner: int, source: int, least: float, most: float
) -> None:  # fmt: skip
    """Write (rows, width): a matrix (rows, inner) times (inner, width), within limits."""
    low, high, full = splat(least), splat(most), below(LANES)
    whole = width // (2 * LANES) * 2 * LANES
    rest, last = below(width - whole), below(max(0, width - whole - LANES))
    for row in range(0, rows, ROWS):
        for x in range(0, whole, 2 * LANES):
            at = 4 * x
            _block(
                target + at, width, row, rows - 1, matrix, inner, source + at, low, high, full, full
            )  # fmt: skip
        if whole < width:
            at = 4 * whole
            _block(
                target + at, width, row, rows - 1, matrix, inner, source + at, low, high, rest, last
            )  # fmt: skip


@part
def _range(image: int, plane: int, width: int, kept: Any, sections: int, own: Any) -> Any:
    """Return the least and the largest of what is kept of some sections; by their numbers."""
    rows, columns = longs(own[2]), longs(own[3])
    low, high = NONE, -NONE
    for section in range(sections):
        given = floats(image + 4 * plane * kept[section])
        for j in range(own[0]):
            for k in range(own[1]):
                value = given[rows[j] * width + columns[k]]
                low, high = min(low, value), max(high, value)
    return low, high


@part
def _taken(target: Any, source: Any, width: int, own: Any) -> None:
    """Write what is kept of a section, row by row."""
    rows, columns = longs(own[2]), longs(own[3])
    for j in range(own[0]):
        for k in range(own[1]):
            target[j * own[1] + k] = source[rows[j] * width + columns[k]]


@part
def _section(
    target: int, source: int, height: int, width: int, own: Any, room: int, low: float, high: float
) -> None:  # fmt: skip
    """Interpolate a section from what is kept of one, which may be the same."""
    plane = 4 * height * width
    _taken(floats(room), floats(source), width, own)
    _product(room + plane, own[0], width, room, own[1], own[5], -NONE, NONE)
    _product(target, height, width, own[4], own[0], room + plane, low, high)


@native("void(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def coarser_image(
    target: int,
    depth: int,
    height: int,
    width: int,
    facts: int,
    alike: int,
    sections: int,
    kept: int,
    matrix: int,
    room: int,
) -> None:
    """Interpolate an image, float32 (depth, height, width), between voxels that are kept, within their range; in place.

    `facts`: FACTS of each section, or of one if all are `alike`; their matrices, float32, are (height, rows) and
    (columns, width). Of sections that are alike some may be kept: so many, by number (int64), with a matrix (depth,
    sections). `room`: `coarser_room` bytes.
    """
    plane = height * width
    if alike == 0:
        for z in range(depth):
            own, here = longs(facts + 8 * FACTS * z), target + 4 * plane * z
            low, high = _range(here, 0, width, own, 1, own)
            _section(here, here, height, width, own, room, low, high)
        return
    own, number = longs(facts), longs(kept)
    low, high = _range(target, plane, width, number, sections, own)
    planes = room + 8 * plane
    for section in range(sections):
        source = target + 4 * plane * number[section]
        found = planes + 4 * plane * section
        _section(found, source, height, width, own, room, -NONE, NONE)
    _product(target, depth, plane, matrix, sections, planes, low, high)
