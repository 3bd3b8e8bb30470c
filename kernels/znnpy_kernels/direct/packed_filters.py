"""Packed filters: the layout of filters and weight gradients that direct kernels read and write, and its kernels.

    forward    [output group][input block][z][y][x][input channel in block][output lane of the group]
    backward   the same with inputs and outputs exchanged, made by the kernel `transpose_filters`

An output group is one or two vectors of LANES output channels (`output_groups`); lanes beyond the last output
channel hold 0. Input channels are not padded: the last input block has its real count. A planar source has one
channel a block.

NumPy unpacks; compiled code packs, transposes, averages, clears, and writes dense (out, in, tap) filters for passes
that walk over all input channels evenly.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy_kernels.direct.filter_packing import pack
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import floats
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.transpose import load_tile, scratch_tile, store_tile, transpose_tile
from znnpy_kernels.simd.vectors import load, splat, store

AT = words("source target width outputs inputs taps output_stride")

Array = NDArray[np.float32]
TRANSPOSE_FILTERS = words("forward backward outputs inputs taps planar o0 o1")
AVERAGE_REPEATS = words("filters z y x repeat_z repeat_y repeat_x step")
CLEAR_GROUPS = words(
    "filters taps inputs width first_input first_output group_inputs group_outputs"
)


@kernel(AT)
def dense_filters(args: Any, worker: int) -> None:
    """Write one piece, packed [tap][input][lane of `width`], into target[output][input][tap].

    `source`: address of the piece; `target`: of filter (first output, first input) of the piece in the dense array;
    `outputs`, `inputs`: real channels of the piece; `output_stride`: floats from one output's filters to the next.
    Tasks on different pieces write disjoint memory.
    """
    source, target = floats(args[AT.source]), floats(args[AT.target])
    width, inputs, taps = args[AT.width], args[AT.inputs], args[AT.taps]
    for output in range(args[AT.outputs]):
        for i in range(inputs):
            at = output * args[AT.output_stride] + i * taps
            for tap in range(taps):
                # The dense side is written in its order: it leaves caches as whole lines.
                target[at + tap] = source[(tap * inputs + i) * width + output]


def output_groups(channels: int) -> tuple[int, ...]:
    """Return the vectors of LANES output channels in each output group, by their number: 2, 2, .., 1."""
    # Pairs first: a group of two vectors uses each broadcast voxel twice.
    blocks = -(-channels // LANES)
    return (2,) * (blocks // 2) + (1,) * (blocks % 2)


def packed_size(outputs: int, inputs: int, taps: int) -> int:
    """Return the floats in the packed filters of a layer with `taps` = z * y * x taps."""
    # Outputs are padded to whole vectors, inputs are not: kernels broadcast these one by one.
    return -(-outputs // LANES) * LANES * inputs * taps


def group_offset(group: int, inputs: int, taps: int) -> int:
    """Return the floats before output group `group`: all groups but the last have two vectors."""
    return group * 2 * LANES * inputs * taps


def block_offset(block: int, vectors: int, taps: int, source_lanes: int = LANES) -> int:
    """Return the floats before input block `block` within an output group of `vectors` vectors."""
    return block * source_lanes * taps * vectors * LANES


def pack_filters(filters: Array, source_lanes: int = LANES, target: Array | None = None) -> Array:
    """Return filters (output, input, z, y, x) as a flat packed float32 array, new or `target`, of which all is set."""
    outputs, inputs, *size = filters.shape
    taps = prod(size)
    packed = np.empty(packed_size(outputs, inputs, taps), np.float32) if target is None else target
    own = filters if _plain(filters) else np.ascontiguousarray(filters, np.float32)
    row, column, *_ = own.strides
    places = own.ctypes.data, row, column, packed.ctypes.data
    # Straight to its place: copies of filters would take as much memory again, several times.
    pack(*places, outputs, inputs, taps, source_lanes)
    return packed


def _plain(filters: Array) -> bool:
    """Return whether the taps of each filter are contiguous float32."""
    taps = filters[:1, :1]
    return filters.dtype == np.float32 and bool(taps.flags.c_contiguous)


def unpack_filters(
    packed: Array, shape: tuple[int, int, int, int, int], source_lanes: int = LANES
) -> Array:
    """Return the filters (output, input, z, y, x) of that shape from a packed array, as a new array."""
    outputs, inputs, *size = shape
    filters = np.empty((-(-outputs // LANES) * LANES, *shape[1:]), np.float32)
    start = 0
    for o0, o1, i0, i1 in _pieces(outputs, inputs, source_lanes):
        count = (o1 - o0) * (i1 - i0) * int(np.prod(size))
        piece = packed[start : start + count].reshape(*size, i1 - i0, o1 - o0)
        filters[o0:o1, i0:i1] = piece.transpose(4, 3, 0, 1, 2)
        start += count
    # A copy without the padding, which would keep the larger array alive.
    return filters[:outputs].copy()


def _pieces(outputs: int, inputs: int, source_lanes: int) -> list[tuple[int, int, int, int]]:
    """Return the (output group x input block) pieces in packed order: o0, o1, i0, i1."""
    pieces, o0 = [], 0
    for vectors in output_groups(outputs):
        o1 = o0 + vectors * LANES
        pieces += [
            (o0, o1, i0, min(i0 + source_lanes, inputs)) for i0 in range(0, inputs, source_lanes)
        ]
        o0 = o1
    return pieces


@kernel(TRANSPOSE_FILTERS)
def transpose_filters(args: Any, worker: int) -> None:
    """Write backward-packed filters from forward-packed ones, for output channels o0..o1.

    The forward ones are blocked (not planar). `planar`: backward ones for planar output channels, one a block, up to
    LANES of them. Tasks over disjoint ranges write disjoint memory; tap order is kept.
    """
    at = TRANSPOSE_FILTERS
    outputs, inputs, taps, o0, o1 = (
        args[at.outputs],
        args[at.inputs],
        args[at.taps],
        args[at.o0],
        args[at.o1],
    )
    o_blocks, i_blocks = (outputs + LANES - 1) // LANES, (inputs + LANES - 1) // LANES
    border = scratch_tile()
    for o_block in range(o0 // LANES, (o1 + LANES - 1) // LANES):
        first = o_block * LANES
        o_group = o_block // 2
        o_width = LANES * min(2, o_blocks - 2 * o_group)
        o_count = min(LANES, outputs - first)
        for i_block in range(i_blocks):
            i_group = i_block // 2
            i_width = LANES * min(2, i_blocks - 2 * i_group)
            i_count = min(LANES, inputs - i_block * LANES)
            source = o_group * 2 * LANES * inputs * taps + i_block * LANES * taps * o_width
            # Written as offsets from the group, so that channel numbers of the whole layer can be added below.
            source -= o_group * 2 * LANES
            target = i_group * 2 * LANES * outputs * taps + o_block * LANES * taps * i_width
            target += (i_block - 2 * i_group) * LANES - first * i_width
            # All outputs of a block before the next tap: they share the cache lines that are read.
            low, high = max(o0, first), min(o1, first + o_count)
            step = (taps if args[at.planar] else 1) * i_width
            for tap in range(taps):
                place = target + tap * (1 if args[at.planar] else o_count) * i_width
                start = args[at.forward] + 4 * (source + tap * i_count * o_width + low)
                here = args[at.backward] + 4 * (place + low * step)
                if high - low == LANES and i_count == LANES:
                    transpose_tile(start, 4 * o_width, here, 4 * step)
                else:
                    # By a tile on the stack. Lanes beyond the last input are zeros, as whatever reads the filters
                    # loads whole vectors.
                    load_tile(start, 4 * o_width, i_count, high - low, border)
                    transpose_tile(border, VECTOR_BYTES, border, VECTOR_BYTES)
                    store_tile(border, here, 4 * step, high - low, LANES)


@inlined
def _block_mean(args: Any, first: int) -> Any:
    """Mean of one vector over the taps of a block."""
    at = AVERAGE_REPEATS
    step, row = 4 * args[at.step], 4 * args[at.step] * args[at.x]
    total = splat(0.0)
    for z in range(args[at.repeat_z]):
        for y in range(args[at.repeat_y]):
            for x in range(args[at.repeat_x]):
                total = total + load(first + row * (z * args[at.y] + y) + step * x)
    # A product by the inverse: one rounding a tap more, but no division of vectors.
    return total * splat(1.0 / (args[at.repeat_z] * args[at.repeat_y] * args[at.repeat_x]))


@inlined
def _fill_block(args: Any, first: int, value: Any) -> None:
    at = AVERAGE_REPEATS
    step, row = 4 * args[at.step], 4 * args[at.step] * args[at.x]
    for z in range(args[at.repeat_z]):
        for y in range(args[at.repeat_y]):
            for x in range(args[at.repeat_x]):
                store(first + row * (z * args[at.y] + y) + step * x, value)


@kernel(AVERAGE_REPEATS)
def average_repeats(args: Any, worker: int) -> None:
    """Replace each tap, in place, by the mean over its block of repeat_z x repeat_y x repeat_x taps.

    `filters`: address of one piece of forward-packed filters, z, y, x taps of `step` floats (a multiple of LANES).
    The repeats divide the sizes.
    """
    at = AVERAGE_REPEATS
    step, row = 4 * args[at.step], 4 * args[at.step] * args[at.x]
    for z in range(0, args[at.z], args[at.repeat_z]):
        for y in range(0, args[at.y], args[at.repeat_y]):
            for x in range(0, args[at.x], args[at.repeat_x]):
                first = args[at.filters] + row * (z * args[at.y] + y) + step * x
                for lane in range(0, step, VECTOR_BYTES):
                    # Within the block mean and stores are of the same vectors, so it is done in place.
                    _fill_block(args, first + lane, _block_mean(args, first + lane))


@kernel(CLEAR_GROUPS)
def clear_groups(args: Any, worker: int) -> None:
    """Set filters between channels of different groups to 0, in place.

    `filters`: address of one piece of forward-packed filters, `taps` of `inputs` channels from `first_input` on,
    each of `width` lanes of outputs from `first_output` on; groups have `group_inputs` inputs and `group_outputs`
    outputs.
    """
    at = CLEAR_GROUPS
    filters, width = floats(args[at.filters]), args[at.width]
    for i in range(args[at.inputs]):
        # The group's first output: lanes before it, and from its end on, belong to other groups.
        own = (args[at.first_input] + i) // args[at.group_inputs] * args[at.group_outputs]
        low = min(width, max(0, own - args[at.first_output]))
        high = min(width, max(0, own + args[at.group_outputs] - args[at.first_output]))
        for tap in range(args[at.taps]):
            row = (tap * args[at.inputs] + i) * width
            for lane in range(low):
                filters[row + lane] = 0.0
            for lane in range(high, width):
                filters[row + lane] = 0.0
