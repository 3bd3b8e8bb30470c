"""Weight gradient of a layer of few planar inputs behind which maxima are taken, from the voxels that won alone.

    dg[tap][output] = sum over maxima of  dy[maximum][output] * source[voxel that won it + tap]

A max pooling hands the gradient of each maximum to one voxel, so all others' are zeros, three of four for windows that
are two voxels apart: products over all voxels would be mostly of these, and write and read them first.

Each channel has its own winners, so lanes go over the taps along x: a maximum's gradient is broadcast, and multiplied
with LANES voxels of each row of taps from its winner on. Lanes beyond the taps sum what nobody reads. Rows of the
source are copied into a near cache first, those of all channels in turn, at a distance that is a constant of the code,
twice, so that no vector is read across lines; there, what lies behind a row may be read.

Argument words. Addresses in bytes; steps and strides in floats, of `index` in taps; all else counts.

    source, source_block        voxel of the first planar channel that tap 0 reads at the layer's voxel (0, 0, 0); step
                                between channels
    source_z, source_y, channels    steps between planes and rows; input channels, all of which are done
    taps_y, taps_x              filter size; along z there is one tap, and there is no stride and no dilation
    voxels_y, voxels_x          the layer's output, whose maxima are taken
    gradient, gradient_block    of maxima: first one of the group's first block; step to the next
    gradient_z, gradient_y      strides of the maxima's gradient; along x it is LANES
    index, index_block, index_z, index_y    number of the tap that won, as `max_pooling` leaves it; along x it is LANES
    window_y, window_x, stride_y, stride_x, before_y, before_x  windows: sizes, steps, voxels of padding before
    planes, y0, y1, width       the slab of maxima: planes, rows y0..y1, maxima of a row
    outputs                     real output channels of the group, at most two blocks
    target                      packed weight gradient of all input channels and the output group, at tap 0

Maxima that nobody won (`max_pooling.NOBODY`) add nothing. Targets are overwritten; lanes beyond the outputs with 0. The
result depends on the slab.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.arithmetic import cover
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.codegen import (
    WORD,
    ZERO_VECTOR,
    Value,
    by_count,
    counted_loop,
    float_pointer,
    load_broadcast,
    load_vector,
    moved,
    multiply_add,
    store_vector,
    word,
)
from znnpy_kernels.simd.lanes import LANES, REGISTERS, VECTOR_BYTES
from znnpy_kernels.simd.stack import stack_room
from znnpy_kernels.simd.transpose import transpose_tile
from znnpy_kernels.simd.vectors import below, load, load_masked, splat, store

AT = words(
    "source source_block source_z source_y channels taps_y taps_x voxels_y voxels_x "
    "gradient gradient_block gradient_z gradient_y index index_block index_z index_y "
    "window_y window_x stride_y stride_x before_y before_x planes y0 y1 width outputs target",
)
PITCH = 64
"""Floats from row to row of the copy, and voxels of the source that are copied along x at most."""
HELD = 64
"""Rows of all channels in the copy: with PITCH floats each half of an L1 cache of 32 KiB."""
MOST_ROWS = 24  # of taps, of all channels: their sums lie on the stack
MOST_WINDOW = 64  # voxels of a window
# Rows of taps whose sums of one channel fit the registers beside a gradient, and of two channels at once, which hide
# the latency of multiply-add: 4 cycles, two a cycle.
TOGETHER, PAIRED = (24, 12) if REGISTERS == 32 else (12, 6)
MOST_MAXIMA = 3 * PITCH  # whose places and gradients are listed at once
_COPY, _LIST, _SUMS = (
    HELD * PITCH + 2 * LANES,
    MOST_MAXIMA * LANES,
    2 * LANES * MOST_ROWS * LANES,
)
_LINE = 64  # bytes of a cache line
# The copy is there twice, the second time half a line further on (with 8 lanes): a vector of one of them lies in a
# single line, as loads from two take twice as long.
_APART = _COPY + LANES
_COPIES = 2 * _APART
_ROOM = _COPIES + 2 * _LIST + _SUMS + LANES * LANES  # one behind the other, last a tile
_PLACE = ir.IntType(32)
_PLACES, _TAPS = ir.VectorType(_PLACE, LANES), ir.VectorType(ir.IntType(16), LANES)


def takes(
    inputs: int, taps: tuple[int, int, int], window: tuple[int, int, int], apart: int
) -> bool:
    """Return whether gradients of so many planar inputs and taps (z, y, x) are made from winners of windows.

    `apart`: voxels from window to window, over all axes. Lanes beyond the taps are idle, where sums over all voxels
    would multiply zeros.
    """
    rows, held = inputs * taps[1], inputs * (window[1] + taps[1] - 1)
    fits = rows <= MOST_ROWS and held <= HELD and window[2] + taps[2] - 1 <= PITCH
    few = taps[2] <= LANES and window[1] * window[2] <= MOST_WINDOW
    return taps[0] == window[0] == 1 and fits and few and taps[2] * apart > 2 * LANES


@intrinsic
def _prepare(
    typingctx: Any, begin: Any, window: Any, source: Any, count: Any, target: Any
) -> tuple[Signature, Any]:
    """Write for each channel of a row of maxima in which place of the copy its winner begins, and its gradient.

    begin: bytes from the copy's first voxel to what the first window begins with, and from window to window; window:
    voxels, voxels of a row, and bytes from row to row less those of a row; source: addresses of taps and gradients;
    target: addresses of places, 32 bits each, and of gradients. Both are 0 where nobody won.
    """

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b = builder
        parts = [[b.extract_value(arg, i) for i in range(arg.type.count)] for arg in args[:3]]
        (first, step), (voxels, along, across), (taps, values) = parts
        places, gradients = (b.extract_value(args[4], i) for i in range(2))
        # Rows of a window by a multiplication: exact, as windows have few voxels.
        inverse = b.udiv(b.add(word((1 << 16) - 1), along), along)
        step, voxels, across, inverse = (_splat(b, it) for it in (step, voxels, across, inverse))
        zero, line, half, apart = (
            ir.Constant(_PLACES, [it] * LANES)
            for it in (0, _LINE - 1, _LINE - VECTOR_BYTES, 4 * _APART)
        )

        def maximum(_: Value, carried: list[Value]) -> list[Value]:
            here, number, value, place, gradient = carried
            tap = b.zext(b.load(number, align=2), _PLACES)
            won = b.icmp_unsigned("<", tap, voxels)
            row = b.lshr(b.mul(tap, inverse), ir.Constant(_PLACES, [16] * LANES))
            own = b.add(b.mul(row, across), b.shl(tap, ir.Constant(_PLACES, [2] * LANES)))
            own = b.add(own, here)
            late = b.icmp_signed(">", b.and_(own, line), half)
            own = b.select(late, b.add(own, apart), own)
            b.store(b.select(won, own, zero), place, align=4)
            store_vector(b, b.select(won, load_vector(b, value), ZERO_VECTOR), gradient)
            following = [b.gep(it, [word(1)]) for it in (number, place)]
            return [
                b.add(here, step),
                following[0],
                moved(b, value, LANES),
                following[1],
                moved(b, gradient, LANES),
            ]

        start = [
            _splat(b, first),
            b.inttoptr(taps, _TAPS.as_pointer()),
            float_pointer(b, values),
            b.inttoptr(places, _PLACES.as_pointer()),
            float_pointer(b, gradients),
        ]
        counted_loop(b, args[3], start, maximum)
        return context.get_dummy_value()

    pair, triple = (types.UniTuple(types.int64, count) for count in (2, 3))
    return types.void(pair, triple, pair, types.int64, pair), codegen


def _splat(b: ir.IRBuilder, value: Value) -> Value:
    """Return the lower half of a word in all lanes."""
    undefined, first = ir.Constant(_PLACES, ir.Undefined), ir.Constant(_PLACE, 0)
    alone = b.insert_element(undefined, b.trunc(value, _PLACE), first)
    return b.shuffle_vector(alone, undefined, ir.Constant(_PLACES, [0] * LANES))


@intrinsic(prefer_literal=True)
def _add(
    typingctx: Any, lanes: Any, copy: Any, prepared: Any, count: Any, sums: Any, rows: Any
) -> tuple[Signature, Any]:
    """Add what `count` maxima of `lanes` neighbouring channels (a literal) bring to `rows` rows of taps.

    copy: address, of the first row of taps; prepared: addresses of the first channel's places and gradients; sums:
    address of the first channel's, and floats from channel to channel.
    """

    def codegen(context: Any, builder: ir.IRBuilder, sig: Signature, args: Any) -> Any:
        b, channels = builder, lanes.literal_value
        _, copy, prepared, count, sums, rows = args
        places, values = (b.extract_value(prepared, i) for i in range(2))
        place, apart = (b.extract_value(sums, i) for i in range(2))

        def emit(together: int) -> None:
            targets = [
                moved(b, float_pointer(b, place), b.add(b.mul(apart, word(own)), word(row * LANES)))
                for own in range(channels)
                for row in range(together)
            ]

            def maximum(_: Value, carried: list[Value]) -> list[Value]:
                number, value, *totals = carried
                for own in range(channels):
                    bytes_ = b.sext(b.load(b.gep(number, [word(own)])), WORD)
                    first = float_pointer(b, b.add(copy, bytes_))
                    factor = load_broadcast(b, moved(b, value, own))
                    for row in range(together):
                        voxels = load_vector(b, moved(b, first, row * PITCH))
                        at = own * together + row
                        totals[at] = multiply_add(b, voxels, factor, totals[at])
                return [b.gep(number, [word(LANES)]), moved(b, value, LANES), *totals]

            begin = [b.inttoptr(places, _PLACE.as_pointer()), float_pointer(b, values)]
            begin += [load_vector(b, target) for target in targets]
            totals = counted_loop(b, count, begin, maximum)[2:]
            for total, target in zip(totals, targets, strict=True):
                store_vector(b, total, target)

        by_count(b, rows, range(1, (PAIRED if channels > 1 else TOGETHER) + 1), emit)
        return context.get_dummy_value()

    pair = types.UniTuple(types.int64, 2)
    return types.void(lanes, types.int64, pair, types.int64, pair, types.int64), codegen


@inlined
def _copy(args: Any, z: int, y: int, rows: int, x: int, columns: int, copy: int) -> None:
    """Copy `rows` rows of the source of all channels, from voxel (y, x) on, twice: row by row, in it by channel."""
    at, channels = AT, args[AT.channels]
    source = args[at.source] + 4 * (z * args[at.source_z] + y * args[at.source_y] + x)
    whole = columns // LANES * LANES
    rest = below(columns - whole)
    for row in range(rows):
        for channel in range(channels):
            place = source + 4 * (row * args[at.source_y] + channel * args[at.source_block])
            here = copy + 4 * PITCH * (row * channels + channel)
            for column in range(0, columns, LANES):
                voxels = (
                    load(place + 4 * column)
                    if column < whole
                    else load_masked(place + 4 * column, rest)
                )
                store(here + 4 * column, voxels)
                store(here + 4 * (_APART + column), voxels)


@inlined
def _sum(args: Any, corner: int, place: Any, high: int, wide: int, rows: int, room: int) -> None:
    """Add `high` x `wide` maxima of the group from `place` (z, y, x) on to all sums: [output][row of taps][lane].

    `corner`: bytes from the copy's first voxel to what the first window begins with.
    """
    at, (z, y, x) = AT, place
    places, values = room + 4 * _COPIES, room + 4 * (_COPIES + _LIST)
    sums = values + 4 * _LIST
    pitch = 4 * PITCH * args[at.channels]
    steps = pitch * args[at.stride_y], 4 * args[at.stride_x]
    window = args[at.window_y] * args[at.window_x], args[at.window_x], pitch - 4 * args[at.window_x]
    gradient = args[at.gradient] + 4 * (z * args[at.gradient_z] + y * args[at.gradient_y])
    index = args[at.index] + 2 * (z * args[at.index_z] + y * args[at.index_y])
    lanes = 2 if rows <= PAIRED else 1
    parts = cover(rows, PAIRED if rows <= PAIRED else TOGETHER)
    for block in range(cover(args[at.outputs], LANES)):
        for row in range(high):
            here = row * wide * VECTOR_BYTES
            _prepare(
                (corner + row * steps[0], steps[1]),
                window,
                (
                    index + 2 * (block * args[at.index_block] + row * args[at.index_y] + x * LANES),
                    gradient
                    + 4 * (block * args[at.gradient_block] + row * args[at.gradient_y] + x * LANES),
                ),
                wide,
                (places + here, values + here),
            )
        for lane in range(0, min(LANES, args[at.outputs] - block * LANES), lanes):
            prepared, first = (places + 4 * lane, values + 4 * lane), 0
            for part in range(parts):
                count = cover(rows - first, parts - part)
                copy = room + 4 * PITCH * first
                to = sums + VECTOR_BYTES * ((block * LANES + lane) * rows + first), rows * LANES
                if lanes == 2:
                    _add(2, copy, prepared, high * wide, to, count)
                else:
                    _add(1, copy, prepared, high * wide, to, count)
                first += count


@inlined
def _strip(args: Any, z: int, y0: int, y1: int, x0: int, x1: int, room: int) -> None:
    """Add maxima y0..y1, x0..x1 of a plane, whose windows see no more of the source than the copy holds."""
    at, channels, taps_y = AT, args[AT.channels], args[AT.taps_y]
    # The layer's voxels that the windows begin with, which padding may lie before, and those that are there.
    begin_y = y0 * args[at.stride_y] - args[at.before_y]
    begin_x = x0 * args[at.stride_x] - args[at.before_x]
    end_y = (y1 - 1) * args[at.stride_y] - args[at.before_y] + args[at.window_y]
    end_x = (x1 - 1) * args[at.stride_x] - args[at.before_x] + args[at.window_x]
    low_y, low_x = max(0, begin_y), max(0, begin_x)
    high_y = max(low_y, min(end_y, args[at.voxels_y]))
    high_x = max(low_x, min(end_x, args[at.voxels_x]))
    seen_y, seen_x = high_y - low_y + taps_y - 1, high_x - low_x + args[at.taps_x] - 1
    _copy(args, z, low_y, seen_y, low_x, seen_x, room)
    corner = 4 * ((begin_y - low_y) * channels * PITCH + begin_x - low_x)
    _sum(args, corner, (z, y0, x0), y1 - y0, x1 - x0, channels * taps_y, room)


@inlined
def _finish(args: Any, rows: int, room: int) -> None:
    """Write the sums as filters lie: [channel][row of taps][tap][vector of outputs]."""
    at, outputs = AT, args[AT.outputs]
    sums = room + 4 * (_COPIES + 2 * _LIST)
    tile, vectors = sums + 4 * _SUMS, cover(outputs, LANES)
    step = VECTOR_BYTES * rows
    for lane in range(outputs * rows, vectors * LANES * rows):
        store(sums + VECTOR_BYTES * lane, splat(0.0))
    for row in range(rows):
        # Rows of the copy are counted the other way round: in each row of taps the channels.
        tap_row = row // args[at.channels]
        own = (row - tap_row * args[at.channels]) * args[at.taps_y] + tap_row
        for vector in range(vectors):
            transpose_tile(
                sums + LANES * vector * step + VECTOR_BYTES * row, step, tile, VECTOR_BYTES
            )
            for tap in range(args[at.taps_x]):
                place = (own * args[at.taps_x] + tap) * vectors + vector
                store(args[at.target] + VECTOR_BYTES * place, load(tile + VECTOR_BYTES * tap))


@kernel(AT)
def maxima_gradient(args: Any, worker: int) -> None:
    """All taps of all input channels and a group of outputs. Words: see the module."""
    at, room = AT, stack_room(_ROOM)
    channels, rows = args[AT.channels], args[AT.channels] * args[AT.taps_y]
    # What is multiplied with zeros where nobody won: all is written before it is read.
    for number in range(rows * PITCH // LANES + 1):
        store(room + VECTOR_BYTES * number, splat(0.0))
        store(room + VECTOR_BYTES * number + 4 * _APART, splat(0.0))
    sums = room + 4 * (_COPIES + 2 * _LIST)
    for number in range(cover(args[at.outputs], LANES) * LANES * rows):
        store(sums + VECTOR_BYTES * number, splat(0.0))
    # As many maxima as the copy and the list have room for, rows of about the same number.
    wide = (PITCH - args[at.taps_x] + 1 - args[at.window_x]) // args[at.stride_x] + 1
    high = (HELD // channels - args[at.taps_y] + 1 - args[at.window_y]) // args[at.stride_y] + 1
    high = min(high, MOST_MAXIMA // min(wide, args[at.width]))
    high = cover(args[at.y1] - args[at.y0], cover(args[at.y1] - args[at.y0], high))
    for z in range(args[at.planes]):
        for y in range(args[at.y0], args[at.y1], high):
            for x in range(0, args[at.width], wide):
                _strip(
                    args, z, y, min(y + high, args[at.y1]), x, min(x + wide, args[at.width]), room
                )
    _finish(args, rows, room)
