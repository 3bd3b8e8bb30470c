"""One tile forward and back: lines along x, y, z by the codelets, through a worker's scratch.

Scratch of one worker, in this order: zeros, room that nobody reads, half spectrum
[z][y][kx][2 * LANES], voxels [z][y][x][LANES] gathered from planar images. Triples are (z, y, x);
steps are bytes. Points of a tile outside [first, first + count) are zeros forward and dropped back.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.fft_codelets import (
    VECTOR_BYTES,
    complex_lines,
    hermitian_lines,
    real_lines,
)
from znnpy_kernels.inlining import inlined
from znnpy_kernels.lanes import LANES
from znnpy_kernels.memory import floats
from znnpy_kernels.vectors import splat, store

COMPLEX_BYTES = 2 * VECTOR_BYTES
SPARE_BYTES = 4 * VECTOR_BYTES


def scratch_floats(size: tuple[int, int, int]) -> int:
    """Floats of scratch that each worker needs for tiles of this size (z, y, x)."""
    z, y, x = size
    return z * y * (2 * (x // 2 + 1) + x) * LANES + SPARE_BYTES // 4


@inlined
def prepare(scratch: int) -> None:
    """Zeros for points outside a range; once a task."""
    for vector in range(4):
        store(scratch + vector * VECTOR_BYTES, splat(0.0))


@inlined
def overlap(origin: int, count: int, limit: int) -> Any:
    """Which of `count` points from voxel `origin` on lie in [0, limit): first, how many."""
    first = max(0, -origin)
    return first, max(0, min(count, limit - origin) - first)


@inlined
def box(origin: Any, count: Any, limit: Any) -> Any:
    """`overlap` on the three axes: firsts and counts."""
    z, nz = overlap(origin[0], count[0], limit[0])
    y, ny = overlap(origin[1], count[1], limit[1])
    x, nx = overlap(origin[2], count[2], limit[2])
    return (z, y, x), (nz, ny, nx)


@inlined
def gathered(
    source: int, steps: Any, lane: int, lanes: int, first: Any, count: Any, to: int
) -> Any:
    """Copy points with any step between lanes to dense voxels; address of point 0 and its steps.

    `lanes` are taken, the others become 0. `to` has room for the counted points.
    """
    dense_y, dense_z = count[2] * VECTOR_BYTES, count[1] * count[2] * VECTOR_BYTES
    for z in range(count[0]):
        for y in range(count[1]):
            row = to + z * dense_z + y * dense_y
            if lanes < LANES:
                for x in range(count[2]):
                    store(row + x * VECTOR_BYTES, splat(0.0))
            start = source + (first[0] + z) * steps[0] + (first[1] + y) * steps[1]
            for number in range(lanes):
                voxels = floats(start + first[2] * steps[2] + number * lane)
                target = floats(row)
                for x in range(count[2]):
                    target[x * LANES + number] = voxels[x * (steps[2] // 4)]
    origin = to - first[0] * dense_z - first[1] * dense_y - first[2] * VECTOR_BYTES
    return origin, (dense_z, dense_y, VECTOR_BYTES)


@inlined
def forward_tile(
    source: int, steps: Any, first: Any, count: Any, size: Any, target: int, frequency: int,
    sign: float, scratch: int,
) -> None:  # fmt: skip
    """Spectrum of a tile; `frequency` bytes between frequencies, imaginary parts times `sign`."""
    row = (size[2] // 2 + 1) * COMPLEX_BYTES
    plane = size[1] * row
    work = scratch + SPARE_BYTES
    flat = size[0] == 1
    for z in range(first[0], first[0] + count[0]):
        here = work + z * plane
        real_lines(
            size[2],
            (
                source + z * steps[0] + first[1] * steps[1], steps[2], steps[1], first[2], count[2],
                here + first[1] * row, COMPLEX_BYTES, row, 0, size[2], count[1], scratch, 0,
            ),
            sign,
        )  # fmt: skip
        if not flat:
            complex_lines(
                size[1],
                (
                    here, row, COMPLEX_BYTES, first[1], count[1],
                    here, row, COMPLEX_BYTES, 0, size[1], row // COMPLEX_BYTES, scratch,
                    0 if sign > 0.0 else 1,
                ),
                1.0,
            )  # fmt: skip
    columns = row // COMPLEX_BYTES if flat else plane // COMPLEX_BYTES
    axis = 1 if flat else 0
    complex_lines(
        size[axis],
        (
            work, row if flat else plane, COMPLEX_BYTES, first[axis],
            count[axis] if count[0] > 0 else 0,
            target, columns * frequency, frequency, 0, size[axis], columns, scratch,
            0 if sign > 0.0 else 1,
        ),
        1.0,
    )  # fmt: skip


@inlined
def inverse_tile(
    source: int, frequency: int, size: Any, first: Any, count: Any, target: int, steps: Any,
    accumulate: int, scale: float, scratch: int,
) -> None:  # fmt: skip
    """The counted points of a tile from its spectrum; `target` is where point 0 would go."""
    row = (size[2] // 2 + 1) * COMPLEX_BYTES
    plane = size[1] * row
    work = scratch + SPARE_BYTES
    flat = size[0] == 1
    columns = row // COMPLEX_BYTES if flat else plane // COMPLEX_BYTES
    axis = 1 if flat else 0
    complex_lines(
        size[axis],
        (
            source, columns * frequency, frequency, 0, size[axis],
            work, row if flat else plane, COMPLEX_BYTES, first[axis], count[axis], columns, scratch,
            1,
        ),
        1.0,
    )  # fmt: skip
    for z in range(first[0], first[0] + count[0]):
        here = work + z * plane
        if not flat:
            complex_lines(
                size[1],
                (
                    here, row, COMPLEX_BYTES, 0, size[1],
                    here, row, COMPLEX_BYTES, first[1], count[1], row // COMPLEX_BYTES, scratch, 1,
                ),
                1.0,
            )  # fmt: skip
        hermitian_lines(
            size[2],
            (
                here + first[1] * row, COMPLEX_BYTES, row, 0, size[2],
                target + z * steps[0] + first[1] * steps[1], steps[2], steps[1], first[2], count[2],
                count[1], scratch, accumulate,
            ),
            scale,
        )  # fmt: skip
