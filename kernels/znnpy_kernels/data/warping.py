"""Where the voxels of a warped patch are read, and which voxels are nearest."""

from __future__ import annotations

from math import floor
from typing import Any

from numba import int64

from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.memory import doubles, longs
from znnpy_kernels.machine.native import native


@native("void(int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def affine_places(
    target: int,
    apart: int,
    matrix: int,
    z: int,
    depth: int,
    y: int,
    height: int,
    x: int,
    width: int,
) -> None:
    """Write matrix (place - centre) + centre for each place of a lattice: float64 (depth, height, width) by axis.

    `apart`: from an axis to the next. `matrix`: float64 (4, 3), the last row is the centre. `z`, `y`, `x`: the lattice
    by axis, float64.
    """
    number = doubles(matrix)
    of_z, of_y, of_x = doubles(z), doubles(y), doubles(x)
    for axis in range(3):
        a, b, c = number[3 * axis], number[3 * axis + 1], number[3 * axis + 2]
        middle = number[9 + axis]
        for front in range(depth):
            for row in range(height):
                begun = a * (of_z[front] - number[9]) + b * (of_y[row] - number[10]) + middle
                found = doubles(target + 8 * (axis * apart + (front * height + row) * width))
                for voxel in range(width):
                    found[voxel] = begun + c * (of_x[voxel] - number[11])


@part
def _lines(target: int, source: int, points: int, weights: int, count: int) -> None:
    """Write the sum of four of some lines of `count` float64, by number and weight."""
    index, weight, found = longs(points), doubles(weights), doubles(target)
    a, b, c, d = (
        doubles(source + 8 * count * index[0]),
        doubles(source + 8 * count * index[1]),
        doubles(source + 8 * count * index[2]),
        doubles(source + 8 * count * index[3]),
    )
    for i in range(count):
        upper = weight[0] * a[i] + weight[1] * b[i]
        found[i] = upper + (weight[2] * c[i] + weight[3] * d[i])


@part
def _bent(target: Any, line: Any, columns: int, spans: Any, basis: int, width: int) -> None:
    for column in range(columns):
        # Neighbours side by side, which four numbers for each voxel would not be.
        by, own = line[column], doubles(basis + 8 * column * width)
        for voxel in range(spans[2 * column], spans[2 * column + 1]):
            target[voxel] += by * own[voxel]


@native(
    "void(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64)"
)
def bend_places(
    target: int,
    depth: int,
    height: int,
    width: int,
    control: int,
    layers: int,
    rows: int,
    columns: int,
    points: int,
    weights: int,
    spans: int,
    basis: int,
    room: int,
) -> None:
    """Add to one axis of places, float64 (depth, height, width), sums of `control`, float64 (layers, rows, columns).

    `points`, int64, and `weights`, float64: the four of z and y, (depth + height, 4). `basis`: float64 (columns,
    width), what each column weighs at each x, 0 but from the first to before the second of its two `spans`, int64.
    `room`: rows + 1 times columns float64.
    """
    line = room + 8 * rows * columns
    for z in range(depth):
        # Axis by axis: a row of voxels needs few numbers of each.
        _lines(room, control, points + 32 * z, weights + 32 * z, rows * columns)
        for y in range(height):
            beside = 32 * (depth + y)
            _lines(line, room, points + beside, weights + beside, columns)
            found = doubles(target + 8 * width * (z * height + y))
            _bent(found, doubles(line), columns, longs(spans), basis, width)


@native("void(int64, int64, int64, int64, int64, int64, int64, int64)")
def nearest_voxels(
    target: int, places: int, count: int, z: int, y: int, x: int, height: int, width: int
) -> None:
    """Write the numbers of the voxels nearest to places, float64 (3, count), in an array (..., height, width); int64.

    Its first voxel lies at z, y, x.
    """
    found, at = longs(target), doubles(places)
    for voxel in range(count):
        front = int64(floor(at[voxel] + 0.5)) - z
        row = int64(floor(at[count + voxel] + 0.5)) - y
        column = int64(floor(at[2 * count + voxel] + 0.5)) - x
        found[voxel] = (front * height + row) * width + column
