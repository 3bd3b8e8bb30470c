"""Voxels of the tiles of layers with strides of two, and their transform (`strided_lines`), for all passes."""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import VECTOR_BYTES
from znnpy_kernels.winograd.forms import NEW
from znnpy_kernels.winograd.planes import copied, holds, seen_of, zeros
from znnpy_kernels.winograd.strided_lines import (
    along_back_source,
    along_gradient,
    along_source,
    back_source_to_points,
    gradient_to_points,
    gradients_along_x,
    source_to_points,
    summed_gradients_along_x,
    voxels_along_x,
)


@inlined
def seen_along(points: int) -> Any:
    """Return the voxels of a tile along an axis, as many as their points."""
    return 2 * points - 1


@inlined
def fetched(place: Any, counts: Any, sizes: Any, here: int, steps: Any, loose: int) -> Any:
    """Return the address of a tile's voxels and bytes along z and y, with zeros beyond an image of so many voxels.

    `place`: of the first one, which lies at `here` if it lies inside; `steps`: bytes along z, y; `loose`: room.
    """
    whole = holds(place[0], sizes[0], 1, counts[0]) and holds(place[1], sizes[1], 1, counts[1])
    if whole and holds(place[2], sizes[2], 1, counts[2]):
        return here, steps[0], steps[1]
    # Copied between zeros: one transform without tests serves all.
    row = counts[2] * VECTOR_BYTES
    plane = counts[1] * row
    zeros(loose, counts[0] * counts[1] * counts[2])
    first_z, seen_z = seen_of(place[0], sizes[0], 1, counts[0])
    first_y, seen_y = seen_of(place[1], sizes[1], 1, counts[1])
    first_x, seen_x = seen_of(place[2], sizes[2], 1, counts[2])
    for z in range(first_z, first_z + seen_z):
        begin = here + z * steps[0] + first_y * steps[1] + first_x * VECTOR_BYTES
        to = loose + z * plane + first_y * row + first_x * VECTOR_BYTES
        copied(begin, (steps[1], VECTOR_BYTES), (seen_y, seen_x), to, (row, VECTOR_BYTES))
    return loose, plane, row


def transform_of(
    along_x: Any, along: Any, to_points: Any, seen_of_points: Any, made_of: Any
) -> Any:
    """The inlined `(form, source, steps, lines, points, slot)`: voxels of one tile and block to their points.

    Points lie `slot` bytes apart, [z][y][x]; `steps`: bytes along z, y; `lines`: room for all points. By lines along x,
    y and z, of so many voxels and points an axis, as the functions of its places tell.
    """

    @inlined
    def transform(form: Any, source: int, steps: Any, lines: int, points: int, slot: int) -> None:
        deep, high = seen_of_points(form.points_z), seen_of_points(form.points_y)
        rows, wide = made_of(form.points_y), made_of(form.points_x)
        row = wide * VECTOR_BYTES
        plane = rows * row
        for z in range(deep):
            for y in range(high):
                here = source + z * steps[0] + y * steps[1]
                along_x(here, VECTOR_BYTES, lines + z * plane + y * row, VECTOR_BYTES)
        if form.points_z == 1:
            for x in range(wide):
                to_points(lines + x * VECTOR_BYTES, row, points + x * slot, wide * slot)
        else:
            for z in range(deep):
                for x in range(wide):
                    here = lines + z * plane + x * VECTOR_BYTES
                    along(here, row, here, row)
            for number in range(rows * wide):
                here = lines + number * VECTOR_BYTES
                to_points(here, plane, points + number * slot, rows * wide * slot)

    return transform


@inlined
def _points_along(points: int) -> Any:
    return points


@inlined
def new_along(points: int) -> Any:
    return NEW if points > 1 else 1


to_source_points = transform_of(
    voxels_along_x, along_source, source_to_points, seen_along, seen_along
)
to_back_points = transform_of(
    gradients_along_x, along_back_source, back_source_to_points, _points_along, _points_along
)
to_gradient_points = transform_of(
    summed_gradients_along_x, along_gradient, gradient_to_points, new_along, _points_along
)
