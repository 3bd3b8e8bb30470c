"""Forward pass of filters with five taps along x by minimal filtering along x alone: few planar inputs, many outputs.

    Y = A' [(G g) * (B' d)]     F(4, 5): eight voxels give four outputs with eight products instead of twenty

(Winograd 1980; Lavin and Gray 2016, arXiv 1509.09308) at the places 0, +-1/2, +-1, +-2 and infinity, whose powers are
exact. All rows of taps are summed at the points, before the transform back, so rounding is that of one axis.

Lanes of points go over tiles: a row of voxels is sorted into tiles once, and a ring keeps the points of the rows that
rows of outputs share. Lanes of sums go over output channels, as feature maps lie.

Argument words are those of `direct.forward` for a planar source, taps and voxels next to each other, one tap along z,
without values (`output`), bias gradients, or sums of before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.direct.epilogue import finished
from znnpy_kernels.direct.forward import AT
from znnpy_kernels.machine.abi import Kernel, kernel
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.codegen import (
    VECTOR,
    ZERO_VECTOR,
    Value,
    add_outer,
    argument,
    by_count,
    counted_loop,
    float_pointer,
    load_vector,
    moved,
    multiply_add,
    shuffled,
    store_vector,
    word,
)
from znnpy_kernels.simd.lanes import LANES, REGISTERS, VECTOR_BYTES
from znnpy_kernels.simd.stack import stack_room
from znnpy_kernels.simd.vectors import below, fma, load, load_masked, splat, store

TAPS, NEW = 5, 4
POINTS = TAPS + NEW - 1
PAIRS = (0.5, 1.0, 2.0)  # places a and -a
PLACES = (0.0, *(sign * place for place in PAIRS for sign in (1, -1)))
LEAST_ROWS, MOST_ROWS = 5, 24
"""Rows of taps of all inputs: what is kept for a task lies on the stack, and in near caches."""
SLOTS = 8  # of the ring: a power of two
MOST_TAPS_Y = SLOTS
# Tiles whose sums of two vectors fit the registers.
TILES = 12 if REGISTERS == 32 else 6
LINE = 6 * LANES  # voxels of LANES tiles, and what the last sees behind them
_FILTERS, _RING, _SUMS = (
    POINTS * MOST_ROWS * 2 * LANES,
    SLOTS * MOST_ROWS * POINTS * LANES,
    POINTS * LANES * 2 * LANES,
)
_ROOM = LINE + _FILTERS + _RING + _SUMS  # one behind the other; all is written before it is read


def filter_matrix() -> Any:
    """G as float64 (POINTS, TAPS): powers of each place by its distances to the others; infinity has the last tap."""
    rows = [
        [place**tap / np.prod([place - other for other in PLACES if other != place])
         for tap in range(TAPS)]
        for place in PLACES
    ]  # fmt: skip
    return np.array([*rows, [0.0] * (TAPS - 1) + [1.0]])


FACTORS = tuple(tuple(float(np.float32(factor)) for factor in row) for row in filter_matrix())


def constant(value: float) -> ir.Constant:
    return ir.Constant(VECTOR, [value] * LANES)


def _polynomial(b: ir.IRBuilder, values: Sequence[Value], roots: Sequence[float]) -> Value:
    """Sum of values times the coefficients, from the lowest, of the product of (x - root)."""
    *factors, _ = np.poly(roots)[::-1]
    total = values[len(factors)]
    for value, factor in zip(values, factors, strict=False):
        total = multiply_add(b, value, constant(float(factor)), total)
    return total


def source_line(b: ir.IRBuilder, d: Sequence[Value]) -> list[Value]:
    """B' d: POINTS values from as many voxels."""
    squares = [place**2 for place in PAIRS]
    found = [_polynomial(b, d[0::2], squares)]
    for place in PAIRS:
        others = [square for square in squares if square != place**2]
        # Places a and -a have the same even and odd parts.
        even, odd = (_polynomial(b, d[first::2][:3], others) for first in (2, 1))
        found += [multiply_add(b, odd, constant(sign * place), even) for sign in (1, -1)]
    return [*found, _polynomial(b, d[1::2], squares)]


def target_line(b: ir.IRBuilder, m: Sequence[Value]) -> list[Value]:
    """A' m: NEW outputs from POINTS sums."""
    evens = [b.fadd(m[1 + 2 * pair], m[2 + 2 * pair]) for pair in range(len(PAIRS))]
    odds = [b.fsub(m[1 + 2 * pair], m[2 + 2 * pair]) for pair in range(len(PAIRS))]
    found: list[Value] = []
    for power in range(NEW):
        parts = odds if power % 2 else evens
        total = m[0] if power == 0 else m[-1] if power == NEW - 1 else None
        for place, part in zip(PAIRS, parts, strict=True):
            factor = constant(place**power)
            total = b.fmul(part, factor) if total is None else multiply_add(b, part, factor, total)
        found.append(total)
    return found


@intrinsic
def _points(typingctx: Any, line: Any, target: Any) -> tuple[Signature, Any]:
    """Transform LANES tiles of a line of voxels, to POINTS vectors side by side."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, start = builder, float_pointer(builder, args[0])
        voxels = [load_vector(b, moved(b, start, part * LANES)) for part in range(NEW + 1)]
        halves = [
            shuffled(b, voxels[pair], voxels[pair + 1], range(first, 2 * LANES, 2))
            for first in (0, 1)
            for pair in (0, 2)
        ]
        own = [
            shuffled(b, halves[2 * odd], halves[2 * odd + 1], range(first, 2 * LANES, 2))
            for first in (0, 1)
            for odd in (0, 1)
        ]
        # What a tile sees behind its own voxels are those of the next one.
        following = [
            shuffled(b, mine, voxels[NEW], [*range(1, LANES), LANES + place])
            for place, mine in enumerate(own)
        ]
        place = float_pointer(b, args[1])
        for point, value in enumerate(source_line(b, own + following)):
            store_vector(b, value, moved(b, place, point * LANES))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic(prefer_literal=True)
def _products(
    typingctx: Any,
    outputs: Any,
    filters: Any,
    ring: Any,
    channels: Any,
    rows: Any,
    low: Any,
    high: Any,
    first: Any,
    target: Any,
    tiles: Any,
) -> tuple[Signature, Any]:
    """Sum products of one point of up to TILES tiles over all channels, and rows low..high of `rows` rows of taps.

    `first`: number of the row of voxels that the first row of taps reads, by which the ring is addressed.
    """

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, vectors = builder, outputs.literal_value
        _, filters, ring, channels, rows, low, high, first, target, tiles = args
        filters, ring, target = (float_pointer(b, it) for it in (filters, ring, target))
        slot = b.mul(channels, word(POINTS * LANES))

        def emit(count: int) -> None:
            def channel(c: Value, carried: list[Value]) -> list[Value]:
                weights = moved(b, filters, b.mul(b.mul(c, rows), word(vectors * LANES)))
                source = moved(b, ring, b.mul(c, word(POINTS * LANES)))

                def row(index: Value, sums: list[Value]) -> list[Value]:
                    number = b.add(low, index)
                    place = b.mul(b.and_(b.add(first, number), word(SLOTS - 1)), slot)
                    here = moved(b, weights, b.mul(number, word(vectors * LANES)))
                    own = [load_vector(b, moved(b, here, j * LANES)) for j in range(vectors)]
                    voxels = moved(b, source, place)
                    return add_outer(b, own, (moved(b, voxels, t) for t in range(count)), sums)

                return counted_loop(b, b.sub(high, low), carried, row, maybe_empty=True)

            sums = counted_loop(b, channels, [ZERO_VECTOR] * count * vectors, channel)
            for number, total in enumerate(sums):
                store_vector(b, total, moved(b, target, number * LANES))

        by_count(b, tiles, range(1, TILES + 1), emit)
        return context.get_dummy_value()

    return types.void(outputs, *[types.int64] * 9), codegen


@intrinsic(prefer_literal=True)
def _outputs(
    typingctx: Any, outputs: Any, arguments: Any, sums: Any, target: Any, count: Any
) -> tuple[Signature, Any]:
    """Transform the sums of one tile back, apply bias and function, and store its first `count` voxels."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, vectors = builder, outputs.literal_value
        _, words, sums, target, count = args

        def field(name: str) -> Value:
            return argument(b, words, getattr(AT, name))

        sums, target, bias = (float_pointer(b, it) for it in (sums, target, field("bias")))
        values: list[Value] = []
        for j in range(vectors):
            step = LANES * vectors * LANES  # from point to point
            places = [moved(b, sums, point * step + j * LANES) for point in range(POINTS)]
            values += target_line(b, [load_vector(b, place) for place in places])
        values = finished(
            b,
            field,
            values,
            lambda: [
                load_vector(b, moved(b, bias, j * LANES))
                for j in range(vectors)
                for _ in range(NEW)
            ],
            lambda: values,
        )

        def stored(voxels: int) -> None:
            for j in range(vectors):
                start = moved(b, target, b.mul(field("target_block"), word(j)))
                for voxel in range(voxels):
                    store_vector(b, values[j * NEW + voxel], moved(b, start, voxel * LANES))

        by_count(b, count, range(1, NEW + 1), stored)
        return context.get_dummy_value()

    return types.void(outputs, arguments, *[types.int64] * 3), codegen


@inlined
def _make_filters(outputs: int, args: Any, target: int) -> None:
    """Transform all taps of a task: [point][row of taps][vector], rows channel by channel."""
    rows = args[AT.channels] * args[AT.taps_y]
    for row in range(rows):
        for vector in range(outputs):
            taps = args[AT.filters] + VECTOR_BYTES * (row * TAPS * outputs + vector)
            for point in range(POINTS):
                total = splat(0.0)
                for tap in range(TAPS):
                    factor = splat(FACTORS[point][tap])
                    total = fma(load(taps + VECTOR_BYTES * tap * outputs), factor, total)
                store(target + VECTOR_BYTES * ((point * rows + row) * outputs + vector), total)


@inlined
def make_row(source: int, step: int, channels: int, voxels: int, line: int, target: int) -> None:
    """Transform the tiles of one row of voxels of all channels, of which `voxels` exist; others count as 0."""
    for channel in range(channels):
        start = source + 4 * channel * step
        for part in range(NEW + 1):
            here = part * LANES
            if voxels >= here + LANES:
                store(line + 4 * here, load(start + 4 * here))
            elif voxels > here:
                store(line + 4 * here, load_masked(start + 4 * here, below(voxels - here)))
            else:
                store(line + 4 * here, splat(0.0))
        _points(line, target + VECTOR_BYTES * POINTS * channel)


@inlined
def _strip(outputs: int, args: Any, place: int, z: int, x: int, room: int) -> None:
    """Compute all rows of a task's plane z from voxel x on, LANES tiles at most."""
    line, filters = room, room + 4 * LINE
    ring, sums = filters + 4 * _FILTERS, filters + 4 * (_FILTERS + _RING)
    channels, taps_y, limit = args[AT.channels], args[AT.taps_y], args[AT.limit_y]
    source = args[AT.source] + 4 * (place * args[AT.source_z] + x)
    width = min(args[AT.width] - x, NEW * LANES)
    tiles = (width + NEW - 1) // NEW
    parts = (tiles + TILES - 1) // TILES
    made = args[AT.y0] + args[AT.origin_y]
    for y in range(args[AT.y0], args[AT.y1]):
        first = y + args[AT.origin_y]
        # Rows of taps that see rows of the source; others see zeros.
        low, high = min(max(0, -first), taps_y), max(0, min(taps_y, limit - first))
        if place < 0 or place >= args[AT.limit_z]:
            high = low
        made = max(made, first + low)
        while made < first + high:
            slot = ring + VECTOR_BYTES * POINTS * channels * (made & (SLOTS - 1))
            start = source + 4 * made * args[AT.source_y]
            make_row(start, args[AT.source_block], channels, width + TAPS - 1, line, slot)
            made += 1
        tile = 0
        for part in range(parts):
            count = 1
            while count * (parts - part) < tiles - tile:
                count += 1
            for point in range(POINTS):
                _products(
                    outputs,
                    filters + VECTOR_BYTES * outputs * point * channels * taps_y,
                    ring + VECTOR_BYTES * point + 4 * tile,
                    channels,
                    taps_y,
                    low,
                    high,
                    first,
                    sums + VECTOR_BYTES * outputs * (point * LANES + tile),
                    count,
                )
            tile += count
        target = args[AT.target] + 4 * (z * args[AT.target_z] + y * args[AT.target_y] + x * LANES)
        for own in range(tiles):
            _outputs(
                outputs,
                args,
                sums + VECTOR_BYTES * outputs * own,
                target + VECTOR_BYTES * NEW * own,
                min(NEW, width - NEW * own),
            )


@inlined
def _rows(outputs: int, args: Any, room: int) -> None:
    _make_filters(outputs, args, room + 4 * LINE)
    for z in range(args[AT.z0], args[AT.z1]):
        for x in range(0, args[AT.width], NEW * LANES):
            _strip(outputs, args, z + args[AT.origin_z], z, x, room)


def _of(outputs: int) -> Kernel:
    """Declare the kernel for so many output blocks."""

    @kernel(AT, name=f"winograd_rows_{outputs}")
    def winograd_rows(args: Any, worker: int) -> None:
        """All rows of a group of output blocks. Words: see the module."""
        _rows(outputs, args, stack_room(_ROOM))

    return winograd_rows


KERNELS: tuple[Kernel, ...] = (_of(1), _of(2))
"""For groups of one and two blocks of outputs."""


def takes(inputs: int, taps: tuple[int, int, int], width: int) -> bool:
    """Return whether layers of so many planar inputs, taps (z, y, x) and outputs along x are made so.

    Of fewer rows of taps than five, rounding is more than four times that of direct convolution.
    """
    z, y, x = taps
    rows = LEAST_ROWS <= inputs * y <= MOST_ROWS and y <= MOST_TAPS_Y
    return rows and (z, x) == (1, TAPS) and width >= NEW
