"""Weight gradients of 3^3 filters by Winograd's minimal filtering: 6^3 products of 6^3 voxels and 4^3 gradients.

A group of tiles at a time: transform planes of the source and of the output gradient; then for each
column of points transform along z, and add the products of all tiles to the sums of each point. At the
end the sums of each pair of channels become taps. Along an axis with dilation d, tile t begins at voxel
t // d * 4 d + t % d of both.

Argument words. Addresses in bytes; strides in floats; all else counts.

    source, source_block, source_z, source_y            voxel (0, 0, 0) of the first block of channels
    inputs, source_size_*                               images and voxels of the source
    dilation_*                                          voxels from tap to tap
    gradient, gradient_block, gradient_z, gradient_y    voxel (0, 0, 0) of the first block
    blocks, gradient_size_*                             vectors of output channels, and voxels
    z0, z1, y0, y1              tiles of this task along z and y; all along x
    target                      packed filter gradients of all channels, overwritten
    scratch, scratch_worker     64-byte aligned; worker w owns `gradient_floats` from w * scratch_worker on

Tasks with different targets may run concurrently. The result depends on which tiles a task takes. Scratch
of a worker, in this order: places of the tiles, voxels of one tile that reaches beyond its images,
planes of a group [block][tile][z][PLANE], a column of points [z][block][tile], all sums
[column][z][input][block].

Transforms of Winograd's minimal filtering for filter gradients: six voxels, four gradients, three taps.

    dg = G' [(A dy) * (B' d)]       the transpose of `line_transforms`, by the filter

Vectors hold LANES channels. All addresses and steps are int64 in bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import longs
from znnpy_kernels.simd.codegen import Value, load_vector, multiply_add, store_vector, word
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import load, splat, store
from znnpy_kernels.winograd.line_transforms import (
    HIGH,
    LOW,
    NEW,
    PLANE,
    POINTS,
    TAPS,
    _at,
    _constant,
    ask_to_read,
    filter_matrix,
    source_line,
    source_plane,
)
from znnpy_kernels.winograd.products import IMAGES, add_products
from znnpy_kernels.winograd.tiles import origin, tiles_along

Line = Callable[[ir.IRBuilder, list[Value]], list[Value]]

AT = words(
    "source source_block source_z source_y inputs source_size_z source_size_y source_size_x "
    "dilation_z dilation_y dilation_x gradient gradient_block gradient_z gradient_y blocks "
    "gradient_size_z gradient_size_y gradient_size_x z0 z1 y0 y1 target scratch scratch_worker",
)
# 16 tiles: see docs/design/winograd.md, *Filter gradient*.
GROUP = 16  # tiles at once: more leave the L2 cache, with fewer sums are read more often
CUBE = POINTS**3
# A tile's voxels at a border; at the end a cube of points of one pair of images.
CUBE_BYTES = CUBE * VECTOR_BYTES
# Words z, y, x: 384 bytes are six lines, and a vector follows.
PLACES_BYTES = 3 * 8 * GROUP  # three words a tile; whole cache lines
PLANE_BYTES = PLANE * VECTOR_BYTES
# Steps from slot to slot and from column to column of planes, for one block of channels: odd numbers of
# lines, so that columns do not fall on one set of the caches.
SLOT = GROUP * VECTOR_BYTES
COLUMN, GRADIENT_COLUMN = (POINTS * GROUP | 1) * VECTOR_BYTES, (NEW * GROUP | 1) * VECTOR_BYTES
PLANES, GRADIENT_PLANES = PLANE * COLUMN, PLANE * GRADIENT_COLUMN


def gradient_line(builder: ir.IRBuilder, y: list[Value]) -> list[Value]:
    """A y: POINTS values from NEW gradients."""
    b = builder

    def pair(at: float) -> list[Value]:
        # A polynomial in at^2, even and odd powers apart: both places of a pair share them.
        even = multiply_add(b, y[2], _constant(at**2), y[0])
        odd = multiply_add(b, y[3], _constant(at**2), y[1])
        return [multiply_add(b, odd, _constant(sign * at), even) for sign in (1, -1)]

    return [y[0], *pair(LOW), *pair(HIGH), y[3]]


def filter_line(builder: ir.IRBuilder, m: list[Value]) -> list[Value]:
    """G' m: TAPS taps from POINTS sums; G has the same magnitudes at a place and its opposite."""
    # So a pair of places needs one product, of the sum or of the difference by the tap's parity.
    b, matrix = builder, filter_matrix()
    low, high = (
        [b.fadd(m[1], m[2]), b.fsub(m[1], m[2])],
        [b.fadd(m[3], m[4]), b.fsub(m[3], m[4])],
    )

    def tap(number: int) -> Value:
        first = b.fmul(low[number % 2], _constant(matrix[1, number]))
        return multiply_add(b, high[number % 2], _constant(matrix[3, number]), first)

    return [b.fadd(m[0], tap(0)), tap(1), b.fadd(m[5], tap(2))]


def _depth_of(line: Line, count: int) -> Any:
    """The intrinsic `(source, step, target, target_step)`: `count` vectors of a column, transformed."""

    def depth(
        typingctx: Any, source: Any, step: Any, target: Any, target_step: Any
    ) -> tuple[Signature, Any]:
        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            b, (source, step, target, target_step) = builder, args
            column = [load_vector(b, _at(b, source, z, step)) for z in range(count)]
            for z, value in enumerate(line(b, column)):
                store_vector(b, value, _at(b, target, z, target_step))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), codegen

    return intrinsic(depth)


def _plane_of(line: Line, count: int) -> Any:
    """The intrinsic `(source, step_y, step_x, target, target_step)`: a plane of count x count vectors."""

    def plane(
        typingctx: Any, source: Any, step_y: Any, step_x: Any, target: Any, target_step: Any
    ) -> tuple[Signature, Any]:
        def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
            b, (source, step_y, step_x, target, target_step) = builder, args
            rows = [b.add(source, b.mul(step_y, word(y))) for y in range(count)]
            columns = [
                line(b, [load_vector(b, _at(b, row, x, step_x)) for row in rows])
                for x in range(count)
            ]
            made = [value for row in zip(*columns, strict=True) for value in line(b, list(row))]
            for number, value in enumerate(made):
                store_vector(b, value, _at(b, target, number, target_step))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), codegen

    return intrinsic(plane)


source_depth = _depth_of(source_line, POINTS)


gradient_plane, gradient_depth = _plane_of(gradient_line, NEW), _depth_of(gradient_line, NEW)


filter_plane, filter_depth = _plane_of(filter_line, POINTS), _depth_of(filter_line, POINTS)


def gradient_floats(inputs: int, outputs: int) -> int:
    """Floats of scratch that each worker needs for a layer."""
    rows, blocks = -(-inputs // LANES), -(-outputs // LANES)
    planes = rows * PLANES + blocks * GRADIENT_PLANES
    sums = CUBE * inputs * blocks * VECTOR_BYTES
    column = POINTS * _point_bytes(rows + blocks)
    return (PLACES_BYTES + CUBE_BYTES + planes + column + sums) // 4


def _point_bytes(blocks: int) -> int:
    # An odd number of vectors, as in `products.odd_bytes`.
    return (blocks * GROUP | 1) * VECTOR_BYTES


_compiled_point_bytes = inlined(_point_bytes)


@inlined
def _fetch(
    sizes: Any, row: Any, dilation: Any, base: int, place: Any, count: int, loose: int
) -> Any:
    """Address and steps of a tile's voxels, count^3, from a place on: zeros beyond the images."""
    steps = 4 * row[0] * dilation[0], 4 * row[1] * dilation[1], 4 * row[2] * dilation[2]
    here = base + 4 * (place[0] * row[0] + place[1] * row[1] + place[2] * row[2])
    seen = (
        min(count, cover(sizes[0] - place[0], dilation[0])),
        min(count, cover(sizes[1] - place[1], dilation[1])),
        min(count, cover(sizes[2] - place[2], dilation[2])),
    )
    # Inside, voxels are read where they lie; only tiles at a border are copied.
    if seen[0] == count and seen[1] == count and seen[2] == count:
        return here, steps[0], steps[1], steps[2]
    target = loose
    for z in range(count):
        for y in range(count):
            for x in range(count):
                inside = z < seen[0] and y < seen[1] and x < seen[2]
                from_ = here + z * steps[0] + y * steps[1] + x * steps[2]
                store(target, load(from_) if inside else splat(0.0))
                target += VECTOR_BYTES
    return loose, count * count * VECTOR_BYTES, count * VECTOR_BYTES, VECTOR_BYTES


@inlined
def _transform(args: Any, places: Any, count: int, loose: int, source: int, gradient: int) -> None:
    """Planes of all tiles and blocks of a group."""
    dilation = args[AT.dilation_z], args[AT.dilation_y], args[AT.dilation_x]
    rows = args[AT.source_z], args[AT.source_y], LANES
    gradient_rows = args[AT.gradient_z], args[AT.gradient_y], LANES
    for tile in range(count):
        place = places[3 * tile], places[3 * tile + 1], places[3 * tile + 2]
        after = 3 * min(tile + 1, count - 1)
        # The next tile's place, or this one's again at the end.
        next_z, next_y, next_x = places[after], places[after + 1], places[after + 2]
        for block in range(cover(args[AT.inputs], LANES)):
            base = args[AT.source] + 4 * block * args[AT.source_block]
            sizes = args[AT.source_size_z], args[AT.source_size_y], args[AT.source_size_x]
            here, z_step, y_step, x_step = _fetch(sizes, rows, dilation, base, place, POINTS, loose)
            target = source + block * PLANES + tile * VECTOR_BYTES
            ahead = base + 4 * (next_z * rows[0] + next_y * rows[1] + next_x * rows[2])
            for z in range(POINTS):
                deep = ahead + 4 * z * rows[0] * dilation[0]
                # Asked for plane by plane, so that requests spread over the transforms.
                ask_to_read(deep, 4 * rows[1] * dilation[1], VECTOR_BYTES * dilation[2])
                source_plane(here + z * z_step, y_step, x_step, target + z * SLOT, COLUMN)
        for block in range(args[AT.blocks]):
            base = args[AT.gradient] + 4 * block * args[AT.gradient_block]
            sizes = args[AT.gradient_size_z], args[AT.gradient_size_y], args[AT.gradient_size_x]
            here, z_step, y_step, x_step = _fetch(
                sizes, gradient_rows, dilation, base, place, NEW, loose
            )
            target = gradient + block * GRADIENT_PLANES + tile * VECTOR_BYTES
            for z in range(NEW):
                into = target + z * SLOT
                gradient_plane(here + z * z_step, y_step, x_step, into, GRADIENT_COLUMN)


@inlined
def _point(args: Any, count: int, here: int, sums: int) -> None:
    """Add the products of one point of all tiles of a group."""
    inputs, blocks = args[AT.inputs], args[AT.blocks]
    gradients = here + cover(inputs, LANES) * GROUP * VECTOR_BYTES
    row = blocks * VECTOR_BYTES
    for block in range(cover(inputs, LANES)):
        source, images = here + block * GROUP * VECTOR_BYTES, min(LANES, inputs - block * LANES)
        target = sums + block * LANES * row
        # Two vectors of gradients share a broadcast voxel, as in `multiply`.
        parts = cover(images, IMAGES[1])
        for pair in range(blocks // 2):
            first = 0
            for part in range(parts):
                # Equal parts again: IMAGES[1] at most.
                many = images * (part + 1) // parts - first
                add_products(
                    2, source + 4 * first, gradients + 2 * pair * GROUP * VECTOR_BYTES,
                    GROUP * VECTOR_BYTES, count, target + first * row + 2 * pair * VECTOR_BYTES,
                    row, many,
                )  # fmt: skip
                first += many
        if blocks % 2:
            last = blocks - 1
            add_products(
                1, source, gradients + last * GROUP * VECTOR_BYTES, GROUP * VECTOR_BYTES, count,
                target + last * VECTOR_BYTES, row, images,
            )  # fmt: skip


@inlined
def _multiply(args: Any, count: int, source: int, gradient: int, column: int, sums: int) -> None:
    """Transforms along z and products, column by column."""
    rows, blocks = cover(args[AT.inputs], LANES), args[AT.blocks]
    point = _compiled_point_bytes(rows + blocks)
    step = args[AT.inputs] * blocks * VECTOR_BYTES
    # Column by column, so that the points of one column are in the L1 cache for all their products.
    for number in range(PLANE):
        for block in range(rows):
            for tile in range(count):
                here = source + block * PLANES + number * COLUMN + tile * VECTOR_BYTES
                into = column + (block * GROUP + tile) * VECTOR_BYTES
                source_depth(here, SLOT, into, point)
        for block in range(blocks):
            for tile in range(count):
                here = gradient + block * GRADIENT_PLANES + number * GRADIENT_COLUMN
                here += tile * VECTOR_BYTES
                into = column + ((rows + block) * GROUP + tile) * VECTOR_BYTES
                gradient_depth(here, SLOT, into, point)
        # For each point the sums are read and written once a group: that traffic is why a group has many tiles.
        for z in range(POINTS):
            _point(args, count, column + z * point, sums + (number * POINTS + z) * step)


@inlined
def _taps(args: Any, sums: int, cube: int) -> None:
    """Transform the sums of all pairs of channels to packed filter gradients."""
    inputs, blocks = args[AT.inputs], args[AT.blocks]
    point = inputs * blocks * VECTOR_BYTES
    for block in range(blocks):
        # Packed filters are in pairs of vectors; the last pair may be a single one.
        width = min(2, blocks - block // 2 * 2) * VECTOR_BYTES
        group = args[AT.target] + TAPS**3 * inputs * (block // 2) * 2 * VECTOR_BYTES
        for image in range(inputs):
            first = image // LANES * LANES
            tap = min(LANES, inputs - first) * width
            target = group + TAPS**3 * first * width + (image - first) * width
            target += block % 2 * VECTOR_BYTES
            here = sums + (image * blocks + block) * VECTOR_BYTES
            # Along z first, from the sums, whose points lie far apart; the rest within a cube in the L1 cache.
            for number in range(PLANE):
                start = here + number * POINTS * point
                filter_depth(start, point, cube + number * VECTOR_BYTES, PLANE_BYTES)
            for z in range(TAPS):
                plane, into = cube + z * PLANE_BYTES, target + z * TAPS * TAPS * tap
                filter_plane(plane, POINTS * VECTOR_BYTES, VECTOR_BYTES, into, tap)


@kernel(AT)
def winograd_gradient(args: Any, worker: int) -> None:
    """Filter gradients, summed over some tiles. Words: see the module."""
    scratch = args[AT.scratch] + 4 * worker * args[AT.scratch_worker]
    rows, blocks = cover(args[AT.inputs], LANES), args[AT.blocks]
    places, loose = longs(scratch), scratch + PLACES_BYTES
    source = loose + CUBE_BYTES
    gradient = source + rows * PLANES
    column = gradient + blocks * GRADIENT_PLANES
    sums = column + POINTS * _compiled_point_bytes(rows + blocks)
    # All sums: a task adds from zero, and the parts are added by a fixed tree.
    for vector in range(CUBE * args[AT.inputs] * blocks):
        store(sums + vector * VECTOR_BYTES, splat(0.0))
    along_y, along_x = (
        args[AT.y1] - args[AT.y0],
        tiles_along(args[AT.gradient_size_x], args[AT.dilation_x]),
    )
    number, total = 0, (args[AT.z1] - args[AT.z0]) * along_y * along_x
    while number < total:
        count = 0
        while count < GROUP and number < total:
            rest, tile = number // along_x, number % along_x
            z = origin(args[AT.z0] + rest // along_y, args[AT.dilation_z])
            y, x = (
                origin(args[AT.y0] + rest % along_y, args[AT.dilation_y]),
                origin(tile, args[AT.dilation_x]),
            )
            number += 1
            if (
                z < args[AT.gradient_size_z]
                and y < args[AT.gradient_size_y]
                and x < args[AT.gradient_size_x]
            ):
                places[3 * count], places[3 * count + 1], places[3 * count + 2] = z, y, x
                count += 1
        if count:
            _transform(args, places, count, loose, source, gradient)
            _multiply(args, count, source, gradient, column, sums)
    # `loose` is free by now, and as large as a cube of points.
    _taps(args, sums, loose)
