"""Moving rows of floats: copy, add, zero, spread, embed, pack and unpack, copy channels.

Words shared by all kernels here: `source`, `target`, `first`, `second` are byte addresses of the
part's first float; `*_z`, `*_y` are strides in floats; `planes`, `rows` count z and y. `length`
is a row in floats, `width` a row in voxels of LANES floats. Rows may have gaps, which are neither
read nor written. Tasks that get disjoint ranges of planes, rows or blocks may run at once. The
target of an addition may be one of its terms; other targets must not overlap their sources.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.abi import kernel
from znnpy_kernels.inlining import inlined
from znnpy_kernels.lanes import LANES
from znnpy_kernels.tiles import AHEAD, load_tile, scratch_tile, store_tile, transpose_tile
from znnpy_kernels.vectors import (
    below,
    load,
    load_masked,
    prefetch,
    select,
    splat,
    store,
    store_masked,
)

BYTES = 4 * LANES


@inlined
def copy_row(source: int, target: int, length: int) -> None:
    """target[i] = source[i]."""
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


@kernel("source", "source_z", "source_y", "target", "target_z", "target_y",
        "planes", "rows", "length")  # fmt: skip
def copy_rows(args: Any, worker: int) -> None:
    """target = source, row by row: crop forward (the caller offsets `source`), layout changes."""
    for z in range(args[6]):
        for y in range(args[7]):
            source = args[0] + 4 * (z * args[1] + y * args[2])
            target = args[3] + 4 * (z * args[4] + y * args[5])
            copy_row(source, target, args[8])


@kernel("source", "target", "length")
def copy_flat(args: Any, worker: int) -> None:
    """target = source over one range."""
    copy_row(args[0], args[1], args[2])


@kernel("first", "first_z", "first_y", "second", "second_z", "second_y",
        "target", "target_z", "target_y", "planes", "rows", "length")  # fmt: skip
def add_rows(args: Any, worker: int) -> None:
    """target = first + second, row by row: the inner node of a combining tree."""
    for z in range(args[9]):
        for y in range(args[10]):
            first = args[0] + 4 * (z * args[1] + y * args[2])
            second = args[3] + 4 * (z * args[4] + y * args[5])
            target = args[6] + 4 * (z * args[7] + y * args[8])
            add_row(first, second, target, args[11])


@kernel("first", "second", "target", "length")
def add_flat(args: Any, worker: int) -> None:
    """target = first + second over one range."""
    add_row(args[0], args[1], args[2], args[3])


@kernel("target", "target_z", "target_y", "planes", "rows", "length")
def zero_rows(args: Any, worker: int) -> None:
    """target = 0, row by row."""
    for z in range(args[3]):
        for y in range(args[4]):
            zero_row(args[0] + 4 * (z * args[1] + y * args[2]), args[5])


@kernel("target", "length")
def zero_flat(args: Any, worker: int) -> None:
    """target = 0 over one range."""
    zero_row(args[0], args[1])


@kernel("source", "source_z", "source_y", "target", "target_z", "target_y",
        "step", "planes", "rows", "width")  # fmt: skip
def spread_rows(args: Any, worker: int) -> None:
    """Copy voxel x of each source row to voxel x * step of the target row; writes no other voxel.

    For the data gradient of a strided convolution: `target_z` and `target_y` already hold the
    strides of z and y (stride times the row distance). The caller zeroes the target once.
    """
    for z in range(args[7]):
        for y in range(args[8]):
            source = args[0] + 4 * (z * args[1] + y * args[2])
            target = args[3] + 4 * (z * args[4] + y * args[5])
            for x in range(args[9]):
                store(target + BYTES * x * args[6], load(source + BYTES * x))


@kernel("source", "source_z", "source_y", "target", "target_z", "target_y",
        "planes", "rows", "length", "first_plane", "first_row",
        "inner_planes", "inner_rows", "inner_length",
        "offset_z", "offset_y", "offset_x")  # fmt: skip
def embed_rows(args: Any, worker: int) -> None:
    """Crop backward: write source into a larger target at an offset, zeros around it.

    `target` is the address of this part's first row, which is plane `first_plane`, row `first_row`
    of the whole target; `planes`, `rows`, `length` measure the part, `length` being a whole row.
    `source` is the address of the whole inner image of inner_planes x inner_rows x inner_length
    floats. `offset_z`, `offset_y` in planes and rows, `offset_x` in floats.
    """
    for z in range(args[6]):
        for y in range(args[7]):
            target = args[3] + 4 * (z * args[4] + y * args[5])
            inner_z = z + args[9] - args[14]
            inner_y = y + args[10] - args[15]
            if 0 <= inner_z < args[11] and 0 <= inner_y < args[12]:
                source = args[0] + 4 * (inner_z * args[1] + inner_y * args[2])
                after = args[16] + args[13]
                zero_row(target, args[16])
                copy_row(source, target + 4 * args[16], args[13])
                zero_row(target + 4 * after, args[8] - after)
            else:
                zero_row(target, args[8])


@kernel("source", "source_image", "source_z", "source_y", "target", "target_z", "target_y",
        "channels", "planes", "rows", "width")  # fmt: skip
def pack_images(args: Any, worker: int) -> None:
    """Planar images [channel][z][y][x] (x contiguous) into one channel block [z][y][x][lane].

    `source_image`: floats from image to image; `channels`: images in this block, 1..LANES. The pad
    lanes are written as 0.
    """
    tile = scratch_tile()
    for z in range(args[8]):
        for y in range(args[9]):
            source = args[0] + 4 * (z * args[2] + y * args[3])
            target = args[4] + 4 * (z * args[5] + y * args[6])
            for x in range(0, args[10], LANES):
                width = min(args[10] - x, LANES)
                load_tile(source + 4 * x, 4 * args[1], args[7], width, tile)
                for c in range(args[7]):
                    prefetch(source + 4 * (x + c * args[1]) + AHEAD)
                if width == LANES:
                    transpose_tile(tile, BYTES, target + BYTES * x, BYTES)
                else:
                    transpose_tile(tile, BYTES, tile, BYTES)
                    store_tile(tile, target + BYTES * x, BYTES, width, LANES)


@kernel("source", "source_z", "source_y", "target", "target_image", "target_z", "target_y",
        "channels", "planes", "rows", "width")  # fmt: skip
def unpack_images(args: Any, worker: int) -> None:
    """The reverse of `pack_images`: the real channels of one block to planar images."""
    tile = scratch_tile()
    for z in range(args[8]):
        for y in range(args[9]):
            source = args[0] + 4 * (z * args[1] + y * args[2])
            target = args[3] + 4 * (z * args[5] + y * args[6])
            for x in range(0, args[10], LANES):
                width = min(args[10] - x, LANES)
                if width == LANES:
                    transpose_tile(source + BYTES * x, BYTES, tile, BYTES)
                else:
                    load_tile(source + BYTES * x, BYTES, width, LANES, tile)
                    transpose_tile(tile, BYTES, tile, BYTES)
                store_tile(tile, target + 4 * x, 4 * args[4], args[7], width)


@inlined
def _channels_row(
    low: int, high: int, cut: int, target: int, wanted: Any, write: Any, width: int
) -> None:
    """Lanes below `cut` come from `low`, the others from `high`, both shifted to match."""
    from_low = wanted & below(cut)
    from_high = wanted ^ from_low
    for x in range(width):
        at = BYTES * x
        value = select(from_low, load_masked(low + at, from_low), load_masked(high + at, from_high))
        store_masked(target + at, write, value)


@kernel("source", "source_block", "source_z", "source_y",
        "target", "target_block", "target_z", "target_y",
        "first_source", "first_target", "channels", "pad",
        "planes", "rows", "width")  # fmt: skip
def copy_channels(args: Any, worker: int) -> None:
    """Copy `channels` channels from `first_source` of one blocked tensor to `first_target` of
    another.

    `source` and `target` are the addresses of block 0 (at the part's first row); `*_block` are
    strides in floats. Only the lanes of these channels are written, so several tasks may fill one
    target at once; with `pad` = 1 the lanes behind the last channel in its block become 0 too.
    For concat forward (pad for the last edge only) and backward (pad always).
    """
    shift = (args[8] - args[9]) % LANES
    last = args[9] + args[10]
    for block in range(args[9] // LANES, (last + LANES - 1) // LANES):
        begin = max(args[9] - block * LANES, 0)
        end = min(last - block * LANES, LANES)
        wanted = below(end) ^ below(begin)
        write = below(LANES) ^ below(begin) if args[11] else wanted
        origin = block * LANES + args[8] - args[9] - shift
        for z in range(args[12]):
            for y in range(args[13]):
                source = args[0] + 4 * (z * args[2] + y * args[3])
                target = args[4] + 4 * (block * args[5] + z * args[6] + y * args[7])
                low = source + 4 * (origin // LANES * args[1] + shift)
                high = source + 4 * ((origin // LANES + 1) * args[1] + shift - LANES)
                # Masked-off lanes in unmapped memory are legal but cost a microcode assist each.
                low = low if begin < LANES - shift else high
                high = high if end > LANES - shift else low
                _channels_row(low, high, LANES - shift, target, wanted, write, args[14])
