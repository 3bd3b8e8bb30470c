"""Transforms one tile forward and back: lines along x, y, z by the codelets, through a worker's scratch.

Scratch of one worker, in this order: vectors that codelets ask for (`spare`), half spectra of some tiles
[tile][z][y][kx][2 * LANES], voxels [z][y][x][LANES] gathered from planar channels. Triples are (z, y, x);
steps are bytes. Points of a tile outside [first, first + count) are zeros forward and dropped back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from znnpy_kernels.fft.codelets import (
    BIAS,
    FEW,
    FLOOR,
    ONES,
    SPARE_BYTES,
    End,
    Lines,
    backward_lines,
    few_backward_lines,
    few_forward_lines,
    forward_lines,
    hermitian_lines,
    real_lines,
)
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import floats
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import below, load, load_masked, splat, store
from znnpy_kernels.spectral.mirrored import fill_mirrored, full_rows, inner_columns

# LANES real parts, then LANES imaginary parts.
COMPLEX_BYTES = 2 * VECTOR_BYTES
# Tiles in scratch at once: what they write to, or read from, the spectra lies together. Half of an
# L2 cache of 1 MiB.
GROUP_BYTES = 1 << 19
# More tiles abreast bring nothing once what they write of a frequency fills a few lines, and take scratch from
# the cache.
MOST_ABREAST = 8
# The next column is under way by the time that it is asked for: the one behind it still has time to come.
COLUMNS_AHEAD = 2  # of spectra that are asked for


def scratch_floats(size: tuple[int, int, int]) -> int:
    """Floats of scratch that each worker needs for tiles of this size (z, y, x)."""
    z, y, x = size
    # A complex number more in each plane than it has: see `plane_bytes`.
    half = z * (y * (x // 2 + 1) + 1) * COMPLEX_BYTES
    voxels = z * y * x * VECTOR_BYTES
    return (SPARE_BYTES + _abreast(half) * half + voxels) // 4


def _abreast(half: int) -> int:
    # One at least, however large a tile is.
    return max(1, min(MOST_ABREAST, GROUP_BYTES // half))


_compiled_abreast = inlined(_abreast)


@inlined
def plane_bytes(size: Any) -> Any:
    """Scratch from plane to plane: the points of a column stand in different sets of a cache."""
    # A plane of a power of two of bytes would put all points of a column on one set.
    return (size[1] * (size[2] // 2 + 1) + 1) * COMPLEX_BYTES


@inlined
def tile_bytes(size: Any) -> Any:
    """Scratch of one tile's half spectrum."""
    return size[0] * plane_bytes(size)


@inlined
def abreast(size: Any) -> Any:
    """Return how many tiles are in scratch at once."""
    return _compiled_abreast(tile_bytes(size))


@inlined
def voxel_room(scratch: int, size: Any) -> Any:
    """Return where gathered voxels go."""
    return scratch + SPARE_BYTES + abreast(size) * tile_bytes(size)


@inlined
def prepare(scratch: int, relu: int) -> None:
    """Zeros for points outside a range, no bias, and `relu` or not for the inverse; once a task."""
    # The codelets read zeros for elements out of range, and write what nobody wants beside them
    # (`Lines.spare`).
    for place in range(0, SPARE_BYTES, VECTOR_BYTES):
        store(scratch + place, splat(0.0))
    store(scratch + ONES, splat(1.0))
    # No floor without relu: the maximum with -Inf is the number itself.
    store(scratch + FLOOR, splat(0.0 if relu else -np.inf))


@inlined
def set_bias(scratch: int, bias: int, lanes: int) -> None:
    """Set what the inverse adds from now on: `lanes` floats, then zeros."""
    store(scratch + BIAS, load_masked(bias, below(lanes)))


@inlined
def overlap(origin: int, count: int, limit: int) -> Any:
    """Return which of `count` points from voxel `origin` on lie in [0, limit): the first, and how many."""
    first = max(0, -origin)
    # Negative where all points lie outside: then none.
    return first, max(0, min(count, limit - origin) - first)


@inlined
def box(origin: Any, count: Any, limit: Any) -> Any:
    """`overlap` on the three axes: firsts and counts."""
    z, nz = overlap(origin[0], count[0], limit[0])
    y, ny = overlap(origin[1], count[1], limit[1])
    x, nx = overlap(origin[2], count[2], limit[2])
    return (z, y, x), (nz, ny, nx)


@inlined
def added(a: Any, b: Any) -> Any:
    """a + b on the three axes."""
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


@inlined
def offset(point: Any, steps: Any) -> Any:
    """Return the bytes from point (0, 0, 0) to a point."""
    return point[0] * steps[0] + point[1] * steps[1] + point[2] * steps[2]


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
            # Lanes beyond are zeros; where all are taken, each float is written below.
            if lanes < LANES:
                for x in range(count[2]):
                    store(row + x * VECTOR_BYTES, splat(0.0))
            start = source + (first[0] + z) * steps[0] + (first[1] + y) * steps[1]
            # Lane by lane, so that each channel is read along x.
            for number in range(lanes):
                voxels = floats(start + first[2] * steps[2] + number * lane)
                target = floats(row)
                for x in range(count[2]):
                    target[x * LANES + number] = voxels[x * (steps[2] // 4)]
    # As if point (0, 0, 0) were there: callers count points of the tile, not of what was gathered.
    origin = to - first[0] * dense_z - first[1] * dense_y - first[2] * VECTOR_BYTES
    return origin, (dense_z, dense_y, VECTOR_BYTES)


@inlined
def _fill(start: int, low: int, high: int, limit: int, step: int, bytes_: int) -> None:
    """Zeros for what is below `limit` but not from `low` to `high`, each `bytes_` long."""
    for number in range(limit):
        if number < low or number >= high:
            for place in range(start + number * step, start + number * step + bytes_, VECTOR_BYTES):
                store(place, splat(0.0))


@inlined
def _row_bytes(size: Any) -> Any:
    return (size[2] // 2 + 1) * COMPLEX_BYTES


@inlined
def forward_rows(
    source: int, steps: Any, first: Any, count: Any, size: Any, work: int, sign: float, spare: int,
    z: int, rows: int,
) -> None:  # fmt: skip
    """Transform along x in one plane, imaginary parts times `sign`; write zeros in the others of `rows`."""
    row, here = _row_bytes(size), work + z * plane_bytes(size)
    real_lines(
        size[2],
        Lines(
            source=End(source + z * steps[0] + first[1] * steps[1], steps[2], steps[1], 0),
            target=End(here + first[1] * row, COMPLEX_BYTES, row, 0),
            # Rows are read once, straight from images: what comes next is asked for along y.
            ahead=End(0, 0, 0, 0),
            lines=count[1],
            groups=1,
            first=first[2],
            count=count[2],
            spare=spare,
            option=0,
            parts=0,
            ahead_parts=0,
        ),
        sign,
    )
    # The rest of the rows as zeros: the transform along y reads whole columns.
    _fill(here, first[1], first[1] + count[1], rows, row, row)


@inlined
def _plane(
    size: Any, work: int, z: int, ahead: int, ahead_row: int, sign: float, spare: int
) -> Any:
    """Lines of the transform along y in one plane of scratch."""
    here = work + z * plane_bytes(size)
    # The sign of the imaginary parts makes conjugate spectra, for which the transform along y must be the
    # inverse one (option 1).
    plane = _columns_at(here, _row_bytes(size))
    return _columns(
        size,
        plane,
        plane,
        _columns_at(ahead, ahead_row),
        0 if sign > 0.0 else 1,
        spare,
        size[2] // 2 + 1,
    )


@inlined
def _columns_at(place: int, row: int) -> Any:
    """The columns along y of a plane whose rows lie `row` bytes apart."""
    return End(place, row, COMPLEX_BYTES, 0)


@inlined
def _columns(
    size: Any, source: End, target: End, ahead: End, option: int, spare: int, count: int
) -> Any:
    """So many columns along y of one plane of half spectra."""
    return Lines(
        source=source,
        target=target,
        ahead=ahead,
        lines=count,
        groups=1,
        first=0,
        count=0,
        spare=spare,
        option=option,
        parts=VECTOR_BYTES,
        ahead_parts=VECTOR_BYTES,
    )


@inlined
def forward_plane(
    source: int, steps: Any, first: Any, count: Any, size: Any, work: int, sign: float,
    spare: int, z: int, ahead: int,
) -> None:  # fmt: skip
    """Transform the plane at `source` along x and, in tiles of several planes, along y.

    Meanwhile rows at `ahead` are asked for.
    """
    apart = 0, steps[1], steps[2]
    forward_rows(source, apart, first, count, size, work, sign, spare, z, size[1])
    # In tiles of one plane, y is the last axis and goes straight to the spectra.
    if size[0] > 1:
        forward_lines(size[1], _plane(size, work, z, ahead, steps[1], sign, spare), 1.0)


@inlined
def fill_planes(work: int, first: int, end: int, limit: int, size: Any) -> None:
    """Zeros in the planes of scratch before `first`, and from `end` to `limit`."""
    _fill(work, first, end, limit, plane_bytes(size), plane_bytes(size))


@inlined
def forward_planes(
    source: int, steps: Any, first: Any, count: Any, size: Any, work: int, sign: float,
    spare: int, following: int,
) -> None:  # fmt: skip
    """Transform along x and, in tiles of several planes, along y; imaginary parts times `sign`.

    While a plane is transformed along y, the source of the next plane is asked for, `following`
    after the last.
    """
    for z in range(first[0], first[0] + count[0]):
        ahead = source + (z + 1) * steps[0] if z + 1 < first[0] + count[0] else following
        ahead += first[1] * steps[1] + first[2] * steps[2]
        here = source + z * steps[0]
        forward_plane(here, steps, first, count, size, work, sign, spare, z, ahead)
    fill_planes(work, first[0], first[0] + count[0], size[0], size)


@inlined
def few_forward_planes(
    source: int, steps: Any, count: Any, size: Any, work: int, sign: float, spare: int
) -> None:
    """`forward_planes` where the points begin at 0 and end before `FEW` on the other axes than x."""
    # Few taps: only the first `FEW` rows and planes are read by their functions, so only those are filled.
    first = (0, 0, 0)
    for z in range(count[0]):
        forward_rows(source, steps, first, count, size, work, sign, spare, z, min(FEW, size[1]))
        if size[0] > 1:
            few_forward_lines(size[1], _plane(size, work, z, work, 0, sign, spare), 1.0)
    _fill(work, 0, count[0], min(FEW, size[0]), plane_bytes(size), plane_bytes(size))


@inlined
def inverse_rows(
    work: int, size: Any, first: Any, count: Any, target: int, steps: Any, stored: Any,
    scale: float, spare: int, z: int,
) -> None:  # fmt: skip
    """Transform back along x in one plane, to the counted points; `stored`: the first that is, and how many.

    All others are added to the target.
    """
    row, here = _row_bytes(size), work + z * plane_bytes(size)
    hermitian_lines(
        size[2],
        Lines(
            source=End(here + first[1] * row, COMPLEX_BYTES, row, 0),
            target=End(target + z * steps[0] + first[1] * steps[1], steps[2], steps[1], 0),
            ahead=End(0, 0, 0, 0),
            lines=count[1],
            groups=1,
            first=first[2],
            count=count[2],
            spare=spare,
            option=stored[0],
            parts=stored[1],
            ahead_parts=0,
        ),
        scale,
    )


@inlined
def inverse_columns(work: int, size: Any, z: int, ahead: int, ahead_row: int, spare: int) -> None:
    """Transform back along y in one plane of tiles that have several; meanwhile rows at `ahead` are asked for."""
    if size[0] > 1:
        backward_lines(size[1], _plane(size, work, z, ahead, ahead_row, 1.0, spare), 1.0)


@inlined
def inverse_planes(
    work: int, size: Any, first: Any, count: Any, target: int, steps: Any, low: Any, high: Any,
    scale: float, spare: int,
) -> None:  # fmt: skip
    """Transform back along y and x, to the counted points; `target` is where point (0, 0, 0) would go.

    Points from `low` up to `high` along all axes are stored, the others added to the target.
    """
    for z in range(first[0], first[0] + count[0]):
        ahead = target + z * steps[0] + first[1] * steps[1] + first[2] * steps[2]
        inverse_columns(work, size, z, ahead, steps[1], spare)
        plane_rows(work, size, first, count, target, steps, low, high, scale, spare, z)


@inlined
def plane_rows(
    work: int, size: Any, first: Any, count: Any, target: int, steps: Any, low: Any, high: Any,
    scale: float, spare: int, z: int,
) -> None:  # fmt: skip
    """Transform back along x in one plane, as `inverse_planes` does in all that are counted."""
    # Rows that other tiles have written are added in whole.
    none, some = (0, 0), (low[2], high[2] - low[2])
    end = first[1] + count[1]
    fresh = low[0] <= z < high[0]
    old = min(max(low[1], first[1]), end) if fresh else end
    late = min(max(high[1], old), end) if fresh else end
    for part in range(3):
        y0 = first[1] if part == 0 else old if part == 1 else late
        y1 = old if part == 0 else late if part == 1 else end
        if y0 < y1:
            rows = (first[0], y0, first[2]), (count[0], y1 - y0, count[2])
            stored = some if part == 1 else none
            inverse_rows(work, size, rows[0], rows[1], target, steps, stored, scale, spare, z)


@inlined
def columns_to(work: int, target: int, size: Any, spare: int) -> None:
    """Transform along y from a plane of scratch to one elsewhere; meanwhile the plane behind is asked for."""
    row = _row_bytes(size)
    there, ahead = _columns_at(target, row), _columns_at(target + plane_bytes(size), row)
    columns = _columns(size, _columns_at(work, row), there, ahead, 0, spare, size[2] // 2 + 1)
    forward_lines(size[1], columns, 1.0)


@inlined
def columns_from(source: int, work: int, size: Any, ahead: int, spare: int) -> None:
    """Transform back along y from a plane elsewhere to one of scratch; meanwhile that at `ahead` is asked for."""
    row = _row_bytes(size)
    here, behind = _columns_at(source, row), _columns_at(ahead, row)
    columns = _columns(size, here, _columns_at(work, row), behind, 1, spare, size[2] // 2 + 1)
    backward_lines(size[1], columns, 1.0)


@inlined
def _columns_of_spectra(place: int, size: Any, frequency: int) -> Any:
    """The columns along y of a plane where spectra lie, `frequency` bytes from one to the next."""
    return End(place, (size[2] // 2 + 1) * frequency, frequency, 0)


@inlined
def plane_to_spectra(work: int, size: Any, target: int, frequency: int, spare: int) -> None:
    """Transform along y from a plane of scratch to where its spectra will lie, `frequency` bytes apart."""
    there = _columns_of_spectra(target, size, frequency)
    source = _columns_at(work, _row_bytes(size))
    columns = _columns(size, source, there, there, 0, spare, size[2] // 2 + 1)
    forward_lines(size[1], columns, 1.0)


@inlined
def _edge_column(source: int, size: Any, frequency: int, column: int) -> None:
    """Copy a column that has mirrored numbers, and fill these in: kx = 0 or, of an even number of points, the last."""
    row = _row_bytes(size)
    for y in range(full_rows(size[1])):
        number = source + y * (size[2] // 2 + 1) * frequency
        store(column + y * row, load(number))
        store(column + y * row + VECTOR_BYTES, load(number + VECTOR_BYTES))
    fill_mirrored(column, size[1], row)


@inlined
def plane_from_spectra(
    source: int, size: Any, frequency: int, ahead: int, work: int, spare: int
) -> None:
    """Transform back along y from where spectra lay to a plane of scratch; the plane at `ahead` is asked for.

    Mirrored numbers are not read.
    """
    row, inner = _row_bytes(size), inner_columns(size[2])
    for edge in range(2 - size[2] % 2):
        kx = edge * (size[2] // 2)
        column = work + kx * COMPLEX_BYTES
        _edge_column(source + kx * frequency, size, frequency, column)
        here = _columns_at(column, row)
        backward_lines(size[1], _columns(size, here, here, here, 1, spare, 1), 1.0)
    here = _columns_of_spectra(source + frequency, size, frequency)
    behind = _columns_of_spectra(ahead + frequency, size, frequency)
    target = _columns_at(work + COMPLEX_BYTES, row)
    backward_lines(size[1], _columns(size, here, target, behind, 1, spare, inner), 1.0)


@inlined
def few_inverse_planes(
    work: int, size: Any, count: Any, target: int, steps: Any, stored: Any, scale: float, spare: int
) -> None:
    """`inverse_planes` where the points begin at 0 and end before `FEW` on the other axes than x."""
    for z in range(count[0]):
        if size[0] > 1:
            few_backward_lines(size[1], _plane(size, work, z, work, 0, 1.0, spare), 1.0)
        inverse_rows(work, size, (0, 0, 0), count, target, steps, stored, scale, spare, z)


@inlined
def to_spectra(
    work: int,
    size: Any,
    tiles: int,
    target: int,
    tile: int,
    frequency: int,
    parts: int,
    sign: float,
    spare: int,
) -> Any:
    """Lines of `forward_lines` along the last axis, from scratch to `tiles` spectra, `tile` bytes apart.

    `parts`: bytes from the real part of a number in the spectra to its imaginary part.

    What is written for one frequency lies together, so each column is done for all tiles in turn.
    """
    _, columns, step = last_axis(size)
    return Lines(
        source=End(work, step, tile_bytes(size), COMPLEX_BYTES),
        target=End(target, columns * frequency, tile, frequency),
        # COLUMNS_AHEAD columns further on, with the steps of the target.
        ahead=End(target + COLUMNS_AHEAD * frequency, columns * frequency, tile, frequency),
        lines=tiles,
        groups=columns,
        first=0,
        count=0,
        spare=spare,
        option=0 if sign > 0.0 else 1,
        parts=parts,
        ahead_parts=parts,
    )


@inlined
def from_spectra(
    source: int, tile: int, frequency: int, parts: int, size: Any, tiles: int, work: int, spare: int,
    first: int, count: int,
) -> Any:  # fmt: skip
    """Lines of `backward_lines` along the last axis, to tiles in scratch, of `count` columns from `first` on.

    `parts` as above.
    """
    _, columns, step = last_axis(size)
    start = source + first * frequency
    return Lines(
        source=End(start, columns * frequency, tile, frequency),
        target=End(work + first * COMPLEX_BYTES, step, tile_bytes(size), COMPLEX_BYTES),
        ahead=End(start + COLUMNS_AHEAD * frequency, columns * frequency, tile, frequency),
        lines=tiles,
        groups=count,
        first=0,
        count=0,
        spare=spare,
        option=1,
        parts=parts,
        ahead_parts=parts,
    )


@inlined
def _back(size: Any, columns: Lines, few: Any) -> None:
    """Transform lines along the last axis back, to all points or, of `few` taps, the first."""
    axis = last_axis(size)[0]
    if few:
        few_backward_lines(size[axis], columns, 1.0)
    else:
        backward_lines(size[axis], columns, 1.0)


@inlined
def _some_from_spectra(
    source: int, tile: int, frequency: int, size: Any, tiles: int, work: int, spare: int,
    first: int, count: int, few: Any,
) -> None:  # fmt: skip
    """Transform some columns of tiles back, to all points or, of `few` taps, the first."""
    columns = from_spectra(
        source, tile, frequency, VECTOR_BYTES, size, tiles, work, spare, first, count
    )
    _back(size, columns, few)


@inlined
def _edges_from_spectra(
    source: int, tile: int, frequency: int, size: Any, tiles: int, work: int, spare: int, few: Any
) -> None:
    """Transform the columns that have mirrored numbers back, of tiles of one plane."""
    for edge in range(2 - size[2] % 2):
        kx = edge * (size[2] // 2)
        column = work + kx * COMPLEX_BYTES
        for number in range(tiles):
            place = source + number * tile + kx * frequency
            _edge_column(place, size, frequency, column + number * tile_bytes(size))
        # In place, one group with a line of each tile.
        here = End(column, _row_bytes(size), tile_bytes(size), 0)
        _back(size, _columns(size, here, here, here, 1, spare, tiles), few)


@inlined
def tiles_from_spectra(
    source: int, tile: int, frequency: int, size: Any, tiles: int, work: int, spare: int,
    few: Any, planes: int,
) -> None:  # fmt: skip
    """Transform tiles back along the last axis, to scratch; mirrored numbers are not read.

    Of tiles of several planes the first `planes` are wanted, and of `few` taps alone written.
    """
    row, inner = size[2] // 2 + 1, inner_columns(size[2])
    first, count = (1, inner) if size[0] == 1 else (0, full_rows(size[1]) * row)
    _some_from_spectra(source, tile, frequency, size, tiles, work, spare, first, count, few)
    if size[0] == 1:
        # Last, as columns before them have asked for these.
        _edges_from_spectra(source, tile, frequency, size, tiles, work, spare, few)
    if size[0] > 1:
        for y in range(full_rows(size[1]), size[1]):
            first = y * row + 1
            _some_from_spectra(source, tile, frequency, size, tiles, work, spare, first, inner, few)
        for number in range(tiles):
            for z in range(planes):
                plane = work + number * tile_bytes(size) + z * plane_bytes(size)
                fill_mirrored(plane, size[1], _row_bytes(size))
                if size[2] % 2 == 0:
                    fill_mirrored(plane + (row - 1) * COMPLEX_BYTES, size[1], _row_bytes(size))


@inlined
def last_axis(size: Any) -> Any:
    """The axis between scratch and spectra, its lines, and the step along it in scratch."""
    columns = size[2] // 2 + 1
    if size[0] == 1:
        # In tiles of one plane the last axis is y, otherwise z.
        return 1, columns, columns * COMPLEX_BYTES
    return 0, size[1] * columns, plane_bytes(size)
