"""Kernels that move rows of floats: copy, add, zero, embed, pack and unpack channel blocks, copy channels.

Words shared by all kernels here: `source`, `target`, `first`, `second` are byte addresses of the part's first float;
`*_z`, `*_y` are strides in floats; `planes`, `rows` count z and y. `length` is a row in floats, `width` a row in
voxels of LANES floats. Rows may have gaps, which are neither read nor written. Tasks that get disjoint ranges of
planes, rows or blocks may run at once. The target of an addition may be one of its terms; other targets must not
overlap their sources.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import longs
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.transpose import AHEAD, load_tile, scratch_tile, store_tile, transpose_tile
from znnpy_kernels.simd.vectors import (
    below,
    load,
    load_masked,
    prefetch,
    select,
    splat,
    store,
    store_masked,
)


@inlined
def copy_row(source: int, target: int, length: int) -> None:
    """target[i] = source[i]."""
    # Whole vectors, then a masked rest: what lies behind the row is neither read nor written.
    full = length - length % LANES
    for i in range(0, full, LANES):
        store(target + 4 * i, load(source + 4 * i))
    if full < length:
        tail = below(length - full)
        store_masked(target + 4 * full, tail, load_masked(source + 4 * full, tail))


@inlined
def add_row(first: int, second: int, target: int, length: int) -> None:
    """target[i] = first[i] + second[i]."""
    full = length - length % LANES
    for i in range(0, full, LANES):
        store(target + 4 * i, load(first + 4 * i) + load(second + 4 * i))
    if full < length:
        tail = below(length - full)
        a = load_masked(first + 4 * full, tail)
        b = load_masked(second + 4 * full, tail)
        store_masked(target + 4 * full, tail, a + b)


@inlined
def zero_row(target: int, length: int) -> None:
    """target[i] = 0."""
    nothing = splat(0.0)
    full = length - length % LANES
    for i in range(0, full, LANES):
        store(target + 4 * i, nothing)
    if full < length:
        store_masked(target + 4 * full, below(length - full), nothing)


COPY_ROWS = words("source source_z source_y target target_z target_y planes rows length")


@kernel(COPY_ROWS)
def copy_rows(args: Any, worker: int) -> None:
    """Copy row by row: crop forward (the caller offsets `source`), layout changes."""
    at = COPY_ROWS
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            source = args[at.source] + 4 * (z * args[at.source_z] + y * args[at.source_y])
            target = args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y])
            copy_row(source, target, args[at.length])


COPY_FLAT = words("source target length")


@kernel(COPY_FLAT)
def copy_flat(args: Any, worker: int) -> None:
    """Copy one range."""
    at = COPY_FLAT
    copy_row(args[at.source], args[at.target], args[at.length])


ADD_ROWS = words(
    "first first_z first_y second second_z second_y target target_z target_y planes rows length",
)


@kernel(ADD_ROWS)
def add_rows(args: Any, worker: int) -> None:
    """Write target = first + second, row by row: the inner node of a combining tree."""
    at = ADD_ROWS
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            first = args[at.first] + 4 * (z * args[at.first_z] + y * args[at.first_y])
            second = args[at.second] + 4 * (z * args[at.second_z] + y * args[at.second_y])
            target = args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y])
            add_row(first, second, target, args[at.length])


ADD_FLAT = words("first second target length")


@kernel(ADD_FLAT)
def add_flat(args: Any, worker: int) -> None:
    """Write target = first + second over one range."""
    at = ADD_FLAT
    add_row(args[at.first], args[at.second], args[at.target], args[at.length])


ZERO_ROWS = words("target target_z target_y planes rows length")


@kernel(ZERO_ROWS)
def zero_rows(args: Any, worker: int) -> None:
    """Write 0, row by row."""
    at = ZERO_ROWS
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            zero_row(
                args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y]),
                args[at.length],
            )


ZERO_FLAT = words("target length")


@kernel(ZERO_FLAT)
def zero_flat(args: Any, worker: int) -> None:
    """Write 0 over one range."""
    at = ZERO_FLAT
    zero_row(args[at.target], args[at.length])


EMBED_ROWS = words(
    "source source_z source_y target target_z target_y planes rows length first_plane first_row "
    "inner_planes inner_rows inner_length offset_z offset_y offset_x",
)


@kernel(EMBED_ROWS)
def embed_rows(args: Any, worker: int) -> None:
    """Write a source into a larger target at an offset, with zeros around it: crop backward.

    `target` is the address of this part's first row, which is plane `first_plane`, row `first_row` of the whole
    target; `planes`, `rows`, `length` measure the part, `length` being a whole row. `source` is the address of the
    whole inner channel of inner_planes x inner_rows x inner_length floats. `offset_z`, `offset_y` in planes and
    rows, `offset_x` in floats.
    """
    at = EMBED_ROWS
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            target = args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y])
            inner_z = z + args[at.first_plane] - args[at.offset_z]
            inner_y = y + args[at.first_row] - args[at.offset_y]
            if 0 <= inner_z < args[at.inner_planes] and 0 <= inner_y < args[at.inner_rows]:
                source = args[at.source] + 4 * (
                    inner_z * args[at.source_z] + inner_y * args[at.source_y]
                )
                after = args[at.offset_x] + args[at.inner_length]
                zero_row(target, args[at.offset_x])
                copy_row(source, target + 4 * args[at.offset_x], args[at.inner_length])
                zero_row(target + 4 * after, args[at.length] - after)
            else:
                zero_row(target, args[at.length])


PACK_IMAGES = words(
    "place source source_image source_z source_y target target_z target_y channels planes rows width",
)


@kernel(PACK_IMAGES)
def pack_images(args: Any, worker: int) -> None:
    """Pack planar channels [channel][z][y][x] (x contiguous) into one channel block [z][y][x][lane].

    `place`: address of an int64, the address of the planar array, of which `source` counts bytes; 0: of memory.
    `source_image`: floats from channel to channel; `channels`: channels in this block, 1..LANES. The pad lanes are
    written as 0.
    """
    at = PACK_IMAGES
    array = longs(args[at.place])[0] if args[at.place] else 0
    tile = scratch_tile()
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            source = array + args[at.source] + 4 * (z * args[at.source_z] + y * args[at.source_y])
            target = args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y])
            for x in range(0, args[at.width], LANES):
                width = min(args[at.width] - x, LANES)
                # Columns beyond `width`, and channels beyond the last, come as zeros: so the pad lanes are
                # zeros after the transposition.
                load_tile(source + 4 * x, 4 * args[at.source_image], args[at.channels], width, tile)
                # Each channel is a stream of its own, more than the hardware follows.
                for c in range(args[at.channels]):
                    prefetch(source + 4 * (x + c * args[at.source_image]) + AHEAD)
                # A whole tile goes straight to its target; a narrower one must not write beyond its row, and
                # goes by the stack.
                if width == LANES:
                    transpose_tile(tile, VECTOR_BYTES, target + VECTOR_BYTES * x, VECTOR_BYTES)
                else:
                    transpose_tile(tile, VECTOR_BYTES, tile, VECTOR_BYTES)
                    store_tile(tile, target + VECTOR_BYTES * x, VECTOR_BYTES, width, LANES)


UNPACK_IMAGES = words(
    "source source_z source_y place target target_image target_z target_y channels planes rows width",
)


@kernel(UNPACK_IMAGES)
def unpack_images(args: Any, worker: int) -> None:
    """Unpack the real channels of one block to planar ones: the reverse of `pack_images`.

    `place`: address of an int64, the address of the planar array; `target`: bytes of it before the part's first row.
    An address of 0: nothing is written.
    """
    at = UNPACK_IMAGES
    array, tile = longs(args[at.place])[0], scratch_tile()
    if array == 0:
        return
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            source = args[at.source] + 4 * (z * args[at.source_z] + y * args[at.source_y])
            target = array + args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y])
            for x in range(0, args[at.width], LANES):
                width, step = min(args[at.width] - x, LANES), 4 * args[at.target_image]
                here, there = source + VECTOR_BYTES * x, target + 4 * x
                # Rows of the tile are channels: the pad lanes are rows that are not stored.
                if width < LANES:
                    load_tile(here, VECTOR_BYTES, width, LANES, tile)
                    transpose_tile(tile, VECTOR_BYTES, tile, VECTOR_BYTES)
                    store_tile(tile, there, step, args[at.channels], width)
                elif args[at.channels] == LANES:
                    transpose_tile(here, VECTOR_BYTES, there, step)
                else:
                    transpose_tile(here, VECTOR_BYTES, tile, VECTOR_BYTES)
                    # Stores with masks take many times as long where vectors have 8 lanes.
                    for channel in range(args[at.channels]):
                        store(there + channel * step, load(tile + VECTOR_BYTES * channel))


@inlined
def _channels_row(
    low: int, high: int, cut: int, target: int, wanted: Any, write: Any, width: int
) -> None:
    """Join lanes below `cut` from `low` and the others from `high`, both shifted to match."""
    from_low = wanted & below(cut)
    from_high = wanted ^ from_low
    for x in range(width):
        at = VECTOR_BYTES * x
        value = select(from_low, load_masked(low + at, from_low), load_masked(high + at, from_high))
        store_masked(target + at, write, value)


COPY_CHANNELS = words(
    "source source_block source_z source_y target target_block target_z target_y first_source "
    "first_target channels pad planes rows width",
)


@kernel(COPY_CHANNELS)
def copy_channels(args: Any, worker: int) -> None:
    """Copy `channels` channels from `first_source` of one blocked tensor to `first_target` of another.

    `source` and `target` are the addresses of block 0 (at the part's first row); `*_block` are strides in floats.
    Only the lanes of these channels are written, so several tasks may fill one target at once; with `pad` = 1 the
    lanes behind the last channel in its block become 0 too. For concat forward (pad for the last edge only) and
    backward (pad always).
    """
    at = COPY_CHANNELS
    # By how many lanes the source lies further on: a target vector joins two neighbouring vectors of the
    # source.
    shift = (args[at.first_source] - args[at.first_target]) % LANES
    last = args[at.first_target] + args[at.channels]
    for block in range(args[at.first_target] // LANES, (last + LANES - 1) // LANES):
        begin = max(args[at.first_target] - block * LANES, 0)
        # In lanes of this block: below `begin` other edges write, above `end` the next one, or pad.
        end = min(last - block * LANES, LANES)
        wanted = below(end) ^ below(begin)
        write = below(LANES) ^ below(begin) if args[at.pad] else wanted
        # The source's channel that belongs to lane 0 of this block, rounded down to a block; it may lie before
        # the first.
        origin = block * LANES + args[at.first_source] - args[at.first_target] - shift
        for z in range(args[at.planes]):
            for y in range(args[at.rows]):
                source = args[at.source] + 4 * (z * args[at.source_z] + y * args[at.source_y])
                target = args[at.target] + 4 * (
                    block * args[at.target_block] + z * args[at.target_z] + y * args[at.target_y]
                )
                low = source + 4 * (origin // LANES * args[at.source_block] + shift)
                high = source + 4 * ((origin // LANES + 1) * args[at.source_block] + shift - LANES)
                # Masked-off lanes in unmapped memory are legal but cost a microcode assist each.
                low = low if begin < LANES - shift else high
                high = high if end > LANES - shift else low
                _channels_row(low, high, LANES - shift, target, wanted, write, args[at.width])
