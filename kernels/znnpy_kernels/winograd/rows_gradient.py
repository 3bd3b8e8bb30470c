"""Weight gradient of five taps along x by minimal filtering along x alone: few planar inputs, many outputs.

    dg = G' [(A y) * (B' d)]    the transpose of F(4, 5) of `rows`, with its places: eight products instead of twenty

for four voxels of the output gradient and eight of the source, which all rows of taps, rows and images add up at the
points. What is summed is transformed back once a task.

Lanes of source points go over tiles, lanes of gradients over output channels. A ring keeps the points of the rows of
voxels that rows of the gradient share; several rows of it are multiplied at once, so that sums stay in registers.

Argument words. Addresses in bytes; steps and strides in floats; all else counts.

    source, source_block        voxel of the first planar channel that tap 0 reads at output position (0, 0, 0); step
                                between channels
    source_z, source_y, channels    steps between output positions; input channels, all of which are done
    taps_y                      rows of taps, neighbouring rows of the source; along z there is one
    gradient, gradient_block    output position (0, 0, 0) of the group's first block; step to the next
    gradient_z, gradient_y      strides of the output gradient; along x it is LANES
    z0, z1, y0, y1, width       the slab of output positions, not empty; whole rows
    target                      packed weight gradient of all input channels and the output group, at tap 0

Targets are overwritten. The result depends on the slab.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.machine.abi import Kernel, kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.codegen import (
    ZERO_VECTOR,
    Value,
    add_outer,
    by_count,
    counted_loop,
    float_pointer,
    load_vector,
    moved,
    multiply_add,
    store_vector,
    word,
)
from znnpy_kernels.simd.lanes import LANES, REGISTERS, VECTOR_BYTES
from znnpy_kernels.simd.stack import stack_room
from znnpy_kernels.simd.vectors import fma, load, splat, store
from znnpy_kernels.winograd.rows import (
    FACTORS,
    LINE,
    MOST_ROWS,
    MOST_TAPS_Y,
    NEW,
    PAIRS,
    POINTS,
    TAPS,
    constant,
    make_row,
)

AT = words(
    "source source_block source_z source_y channels taps_y "
    "gradient gradient_block gradient_z gradient_y z0 z1 y0 y1 width target",
)
LEAST_ROWS = 10
"""Rows of taps of all inputs: for fewer the gradient's points cost about as much as the products that they save."""
# Rows of the gradient multiplied at once: their points of two vectors fill half of the L1 cache.
ROWS = 4 if LANES <= 8 else 2
SLOTS = 16
"""Of the ring: a power of two, enough for all rows of taps of ROWS rows."""
# Rows of taps whose sums of two vectors fit the registers.
TOGETHER = MOST_TAPS_Y if REGISTERS == 32 else 6
_RING, _GRADIENTS, _SUMS = (
    SLOTS * MOST_ROWS * POINTS * LANES,
    POINTS * ROWS * LANES * 2 * LANES,
    POINTS * MOST_ROWS * 2 * LANES,
)
_ROOM = LINE + _RING + _GRADIENTS + _SUMS  # one behind the other; all is written before it is read


def gradient_line(b: ir.IRBuilder, y: Sequence[Value]) -> list[Value]:
    """A y: POINTS values from NEW voxels of the gradient."""
    found = [y[0]]
    for place in PAIRS:
        # Places a and -a have the same even and odd parts.
        even = multiply_add(b, y[2], constant(place**2), y[0])
        odd = multiply_add(b, y[3], constant(place**2), y[1])
        found += [multiply_add(b, odd, constant(sign * place), even) for sign in (1, -1)]
    return [*found, y[3]]


@intrinsic(prefer_literal=True)
def _gradient_points(
    typingctx: Any, outputs: Any, gradient: Any, block: Any, target: Any, count: Any
) -> tuple[Signature, Any]:
    """Transform the first `count` voxels of one tile of the gradient; others count as 0."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, vectors = builder, outputs.literal_value
        _, gradient, block, target, count = args
        gradient, target = (float_pointer(b, it) for it in (gradient, target))
        step = ROWS * LANES * vectors * LANES  # from point to point

        def emit(voxels: int) -> None:
            for j in range(vectors):
                start = moved(b, gradient, b.mul(block, word(j)))
                own = [load_vector(b, moved(b, start, voxel * LANES)) for voxel in range(voxels)]
                own += [ZERO_VECTOR] * (NEW - voxels)
                for point, value in enumerate(gradient_line(b, own)):
                    store_vector(b, value, moved(b, target, point * step + j * LANES))

        by_count(b, count, range(1, NEW + 1), emit)
        return context.get_dummy_value()

    return types.void(outputs, *[types.int64] * 4), codegen


@intrinsic(prefer_literal=True)
def _products(
    typingctx: Any,
    outputs: Any,
    gradients: Any,
    ring: Any,
    slot: Any,
    first: Any,
    rows: Any,
    tiles: Any,
    target: Any,
    taps: Any,
) -> tuple[Signature, Any]:
    """Add the products of one point and one channel to the sums of up to TOGETHER rows of taps.

    Of `rows` rows of the gradient; `first`: number of the row of voxels that the first row of taps reads at the first
    of them, by which the ring is addressed.
    """

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, vectors = builder, outputs.literal_value
        _, gradients, ring, slot, first, rows, tiles, target, taps = args
        gradients, ring, target = (float_pointer(b, it) for it in (gradients, ring, target))

        def emit(count: int) -> None:
            def row(index: Value, carried: list[Value]) -> list[Value]:
                number = b.add(first, index)
                slots = (b.and_(b.add(number, word(tap)), word(SLOTS - 1)) for tap in range(count))
                lines = [moved(b, ring, b.mul(it, slot)) for it in slots]
                start = moved(b, gradients, b.mul(index, word(LANES * vectors * LANES)))

                def tile(index: Value, sums: list[Value]) -> list[Value]:
                    here = moved(b, start, b.mul(index, word(vectors * LANES)))
                    own = [load_vector(b, moved(b, here, j * LANES)) for j in range(vectors)]
                    return add_outer(b, own, (moved(b, line, index) for line in lines), sums)

                return counted_loop(b, tiles, carried, tile)

            places = [moved(b, target, number * LANES) for number in range(count * vectors)]
            sums = counted_loop(b, rows, [load_vector(b, place) for place in places], row)
            for total, place in zip(sums, places, strict=True):
                store_vector(b, total, place)

        by_count(b, taps, range(1, TOGETHER + 1), emit)
        return context.get_dummy_value()

    return types.void(outputs, *[types.int64] * 8), codegen


@inlined
def _multiply(
    outputs: int, args: Any, ring: int, gradients: int, sums: int, y: int, rows: int, tiles: int
) -> None:
    """Add the products of some rows of the gradient, from y on, to all sums: [point][channel][row of taps][vector]."""
    channels, taps_y = args[AT.channels], args[AT.taps_y]
    parts = (taps_y + TOGETHER - 1) // TOGETHER
    for point in range(POINTS):
        for channel in range(channels):
            tap = 0
            for part in range(parts):
                count = 1
                while count * (parts - part) < taps_y - tap:
                    count += 1
                _products(
                    outputs,
                    gradients + VECTOR_BYTES * outputs * LANES * ROWS * point,
                    ring + VECTOR_BYTES * (POINTS * channel + point),
                    channels * POINTS * LANES,
                    y + tap,
                    rows,
                    tiles,
                    sums + VECTOR_BYTES * outputs * ((point * channels + channel) * taps_y + tap),
                    count,
                )
                tap += count


@inlined
def _strip(outputs: int, args: Any, z: int, x: int, room: int) -> None:
    """Add all rows of plane z from voxel x on, LANES tiles at most, to the sums."""
    ring = room + 4 * LINE
    gradients, sums = ring + 4 * _RING, ring + 4 * (_RING + _GRADIENTS)
    channels, taps_y = args[AT.channels], args[AT.taps_y]
    width = min(args[AT.width] - x, NEW * LANES)
    tiles = (width + NEW - 1) // NEW
    source = args[AT.source] + 4 * (z * args[AT.source_z] + x)
    gradient = args[AT.gradient] + 4 * (z * args[AT.gradient_z] + x * LANES)
    y, made = args[AT.y0], args[AT.y0]
    while y < args[AT.y1]:
        rows = min(ROWS, args[AT.y1] - y)
        while made < y + rows + taps_y - 1:
            slot = ring + VECTOR_BYTES * POINTS * channels * (made & (SLOTS - 1))
            start = source + 4 * made * args[AT.source_y]
            make_row(start, args[AT.source_block], channels, width + TAPS - 1, room, slot)
            made += 1
        for row in range(rows):
            start = gradient + 4 * (y + row) * args[AT.gradient_y]
            for tile in range(tiles):
                _gradient_points(
                    outputs,
                    start + VECTOR_BYTES * NEW * tile,
                    args[AT.gradient_block],
                    gradients + VECTOR_BYTES * outputs * (row * LANES + tile),
                    min(NEW, width - NEW * tile),
                )
        _multiply(outputs, args, ring, gradients, sums, y, rows, tiles)
        y += rows


@inlined
def _back(outputs: int, rows: int, sums: int, target: int) -> None:
    """Write G' of the sums of all rows of taps, packed."""
    for number in range(rows * outputs):
        row = number // outputs
        vector = number - row * outputs
        for tap in range(TAPS):
            total = splat(0.0)
            for point in range(POINTS):
                place = sums + VECTOR_BYTES * (point * rows * outputs + number)
                total = fma(load(place), splat(FACTORS[point][tap]), total)
            store(target + VECTOR_BYTES * ((row * TAPS + tap) * outputs + vector), total)


def _of(outputs: int) -> Kernel:
    """Declare the kernel for so many output blocks."""

    @kernel(AT, name=f"winograd_rows_gradient_{outputs}")
    def winograd_rows_gradient(args: Any, worker: int) -> None:
        """All taps of all input channels and a group of output blocks. Words: see the module."""
        room = stack_room(_ROOM)
        sums = room + 4 * (LINE + _RING + _GRADIENTS)
        rows = args[AT.channels] * args[AT.taps_y]
        for number in range(POINTS * rows * outputs):
            store(sums + VECTOR_BYTES * number, splat(0.0))
        for z in range(args[AT.z0], args[AT.z1]):
            for x in range(0, args[AT.width], NEW * LANES):
                _strip(outputs, args, z, x, room)
        _back(outputs, rows, sums, args[AT.target])

    return winograd_rows_gradient


KERNELS: tuple[Kernel, ...] = (_of(1), _of(2))
"""For groups of one and two blocks of outputs."""
