"""Softmax over all channels of a voxel, forward and backward.

A row is taken LANES voxels at a time and transposed, so that a vector holds one channel of LANES
voxels: maxima and sums over channels are plain vector operations. `*_block` are strides in floats
from channel block to channel block, `channels` counts all real channels, `width` voxels of a row.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.abi import kernel
from znnpy_kernels.inlining import inlined
from znnpy_kernels.lanes import LANES
from znnpy_kernels.memory import floats
from znnpy_kernels.tiles import scratch_tile, to_rows, to_voxels
from znnpy_kernels.vector_math import exp, larger
from znnpy_kernels.vectors import below, load, select, splat, store

BYTES = 4 * LANES


@inlined
def blocks_of(channels: int) -> int:
    """How many blocks hold this many channels."""
    return (channels + LANES - 1) // LANES


@inlined
def zero_pad(tile: int, real: int) -> None:
    """Zero the tile rows behind the real channels."""
    for c in range(real, LANES):
        store(tile + BYTES * c, splat(0.0))


@inlined
def add_bias(tile: int, bias: int, real: int) -> None:
    """Add bias[c] to tile row c; address 0 means none."""
    if bias:
        for c in range(real):
            store(tile + BYTES * c, load(tile + BYTES * c) + splat(floats(bias)[c]))


@inlined
def _load_block(
    source: int, step: int, bias: int, block: int, channels: int, width: int, tile: int
) -> int:
    real = min(channels - block * LANES, LANES)
    to_rows(source + step * block, width, tile)
    add_bias(tile, bias + BYTES * block if bias else 0, real)
    return real


@inlined
def _forward_chunk(
    source: int, source_step: int, target: int, target_step: int,
    bias: int, channels: int, width: int, tile: int,
) -> None:  # fmt: skip
    largest, sums = splat(-3.4028234663852886e38), splat(0.0)
    for block in range(blocks_of(channels)):
        real = _load_block(source, source_step, bias, block, channels, width, tile)
        for c in range(real):
            largest = larger(load(tile + BYTES * c), largest)
    for block in range(blocks_of(channels)):
        real = _load_block(source, source_step, bias, block, channels, width, tile)
        for c in range(real):
            sums = sums + exp(load(tile + BYTES * c) - largest)
    for block in range(blocks_of(channels)):
        real = _load_block(source, source_step, bias, block, channels, width, tile)
        for c in range(real):
            store(tile + BYTES * c, exp(load(tile + BYTES * c) - largest) / sums)
        zero_pad(tile, real)
        to_voxels(tile, target + target_step * block, width)


@kernel("source", "source_block", "source_z", "source_y",
        "target", "target_block", "target_z", "target_y",
        "bias", "channels", "planes", "rows", "width")  # fmt: skip
def softmax_forward(args: Any, worker: int) -> None:
    """y = softmax over channels of (x + bias); `bias` is the address of block after block or 0.

    `source` and `target` are addresses in block 0 and may be the same; pad lanes are written as 0.
    """
    tile = scratch_tile()
    for z in range(args[10]):
        for y in range(args[11]):
            source = args[0] + 4 * (z * args[2] + y * args[3])
            target = args[4] + 4 * (z * args[6] + y * args[7])
            for x in range(0, args[12], LANES):
                _forward_chunk(source + BYTES * x, 4 * args[1], target + BYTES * x, 4 * args[5],
                               args[8], args[9], min(args[12] - x, LANES), tile)  # fmt: skip


@inlined
def _inner_products(
    output: int, output_step: int, gradient: int, gradient_step: int,
    channels: int, width: int, first: int, second: int,
) -> Any:  # fmt: skip
    """Sum over channels of y * g, one voxel a lane."""
    sums = splat(0.0)
    for block in range(blocks_of(channels)):
        to_rows(output + output_step * block, width, first)
        to_rows(gradient + gradient_step * block, width, second)
        for c in range(min(channels - block * LANES, LANES)):
            sums = sums + load(first + BYTES * c) * load(second + BYTES * c)
    return sums


@inlined
def _backward_chunk(
    output: int, gradient: int, target: int, inner: Any, real: int, width: int,
    first: int, second: int, sums: Any,
) -> Any:  # fmt: skip
    to_rows(output, width, first)
    to_rows(gradient, width, second)
    for c in range(real):
        y = load(first + BYTES * c)
        store(first + BYTES * c, y * (load(second + BYTES * c) - inner))
    zero_pad(first, real)
    to_voxels(first, target, width)
    for x in range(width):
        sums = sums + load(target + BYTES * x)
    return sums


@kernel("output", "output_block", "output_z", "output_y",
        "gradient", "gradient_block", "gradient_z", "gradient_y",
        "target", "target_block", "target_z", "target_y",
        "bias_gradient", "channels", "planes", "rows", "width")  # fmt: skip
def softmax_backward(args: Any, worker: int) -> None:
    """target = y * (g - sum over channels of y g); `target` must not be `gradient`.

    `bias_gradient`: address for the part's sums, LANES floats block after block, or 0.
    """
    first, second = scratch_tile(), scratch_tile()
    for block in range(blocks_of(args[13])):
        real = min(args[13] - block * LANES, LANES)
        sums = splat(0.0)
        for z in range(args[14]):
            for y in range(args[15]):
                output = args[0] + 4 * (z * args[2] + y * args[3])
                gradient = args[4] + 4 * (z * args[6] + y * args[7])
                target = args[8] + 4 * (block * args[9] + z * args[10] + y * args[11])
                for x in range(0, args[16], LANES):
                    width = min(args[16] - x, LANES)
                    at = BYTES * x
                    inner = _inner_products(output + at, 4 * args[1], gradient + at, 4 * args[5],
                                            args[13], width, first, second)  # fmt: skip
                    sums = _backward_chunk(
                        output + at + 4 * block * args[1], gradient + at + 4 * block * args[5],
                        target + at, inner, real, width, first, second, sums)  # fmt: skip
        if args[12]:
            store(args[12] + BYTES * block, select(below(real), sums, splat(0.0)))
