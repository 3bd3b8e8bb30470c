"""Softmax over all channels of a voxel, forward and backward.

A row is taken LANES voxels at a time and transposed, so that a vector holds one channel of LANES
voxels: maxima and sums over channels are plain vector operations. `*_block` are strides in floats
from channel block to channel block, `channels` counts all real channels, `width` voxels of a row.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import floats
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.transpose import scratch_tile, to_rows, to_voxels
from znnpy_kernels.simd.vector_math import exp, larger
from znnpy_kernels.simd.vectors import load, splat, store


@inlined
def blocks_of(channels: int) -> int:
    """Return how many blocks hold this many channels."""
    return (channels + LANES - 1) // LANES


@inlined
def zero_pad(tile: int, real: int) -> None:
    """Zero the tile rows behind the real channels."""
    for c in range(real, LANES):
        store(tile + VECTOR_BYTES * c, splat(0.0))


@inlined
def add_bias(tile: int, bias: int, real: int) -> None:
    """Add bias[c] to tile row c; address 0 means none."""
    if bias:
        for c in range(real):
            store(tile + VECTOR_BYTES * c, load(tile + VECTOR_BYTES * c) + splat(floats(bias)[c]))


@inlined
def _load_block(
    source: int, step: int, bias: int, block: int, channels: int, width: int, tile: int
) -> int:
    # As `loss_rows.load_block`, with a bias.
    real = min(channels - block * LANES, LANES)
    to_rows(source + step * block, width, tile)
    add_bias(tile, bias + VECTOR_BYTES * block if bias else 0, real)
    return real


@inlined
def _forward_chunk(
    source: int, source_step: int, target: int, target_step: int,
    bias: int, channels: int, width: int, tile: int,
) -> None:  # fmt: skip
    # The smallest float32, not -Inf: see `loss_rows.scanned`.
    largest, sums = splat(-3.4028234663852886e38), splat(0.0)
    for block in range(blocks_of(channels)):
        real = _load_block(source, source_step, bias, block, channels, width, tile)
        for c in range(real):
            largest = larger(load(tile + VECTOR_BYTES * c), largest)
    # Three passes over blocks, which are in the L1 cache, instead of room for all channels.
    for block in range(blocks_of(channels)):
        real = _load_block(source, source_step, bias, block, channels, width, tile)
        for c in range(real):
            sums = sums + exp(load(tile + VECTOR_BYTES * c) - largest)
    for block in range(blocks_of(channels)):
        real = _load_block(source, source_step, bias, block, channels, width, tile)
        for c in range(real):
            store(tile + VECTOR_BYTES * c, exp(load(tile + VECTOR_BYTES * c) - largest) / sums)
        zero_pad(tile, real)
        to_voxels(tile, target + target_step * block, width)


SOFTMAX_FORWARD = words(
    "source source_block source_z source_y target target_block target_z target_y bias channels "
    "planes rows width",
)


@kernel(SOFTMAX_FORWARD)
def softmax_forward(args: Any, worker: int) -> None:
    """Write y = softmax over channels of (x + bias); `bias` is the address of block after block or 0.

    `source` and `target` are addresses in block 0 and may be the same; pad lanes are written as 0.
    """
    at = SOFTMAX_FORWARD
    tile = scratch_tile()
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            source = args[at.source] + 4 * (z * args[at.source_z] + y * args[at.source_y])
            target = args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y])
            for x in range(0, args[at.width], LANES):
                _forward_chunk(
                    source + VECTOR_BYTES * x, 4 * args[at.source_block], target + VECTOR_BYTES * x,
                    4 * args[at.target_block], args[at.bias], args[at.channels],
                    min(args[at.width] - x, LANES), tile,
                )  # fmt: skip


@inlined
def _inner_products(
    output: int, output_step: int, gradient: int, gradient_step: int,
    channels: int, width: int, first: int, second: int,
) -> Any:  # fmt: skip
    """Return the sum over channels of y * g, one voxel a lane."""
    sums = splat(0.0)
    for block in range(blocks_of(channels)):
        to_rows(output + output_step * block, width, first)
        to_rows(gradient + gradient_step * block, width, second)
        for c in range(min(channels - block * LANES, LANES)):
            sums = sums + load(first + VECTOR_BYTES * c) * load(second + VECTOR_BYTES * c)
    return sums


@inlined
def _backward_chunk(
    output: int, gradient: int, target: int, inner: Any, real: int, width: int,
    first: int, second: int,
) -> None:  # fmt: skip
    to_rows(output, width, first)
    # Read before they are written: `target` may be the gradient.
    to_rows(gradient, width, second)
    for c in range(real):
        y = load(first + VECTOR_BYTES * c)
        store(first + VECTOR_BYTES * c, y * (load(second + VECTOR_BYTES * c) - inner))
    zero_pad(first, real)
    to_voxels(first, target, width)


SOFTMAX_BACKWARD = words(
    "output output_block output_z output_y gradient gradient_block gradient_z gradient_y target "
    "target_block target_z target_y channels planes rows width",
)


@kernel(SOFTMAX_BACKWARD)
def softmax_backward(args: Any, worker: int) -> None:
    """Write y * (g - sum over channels of y g); `target` may be `gradient`."""
    at = SOFTMAX_BACKWARD
    first, second = scratch_tile(), scratch_tile()
    output_block, gradient_block = 4 * args[at.output_block], 4 * args[at.gradient_block]
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            output = args[at.output] + 4 * (z * args[at.output_z] + y * args[at.output_y])
            gradient = args[at.gradient] + 4 * (z * args[at.gradient_z] + y * args[at.gradient_y])
            target = args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y])
            for x in range(0, args[at.width], LANES):
                width = min(args[at.width] - x, LANES)
                here = VECTOR_BYTES * x
                inner = _inner_products(
                    output + here, output_block, gradient + here, gradient_block,
                    args[at.channels], width, first, second,
                )  # fmt: skip
                for block in range(blocks_of(args[at.channels])):
                    _backward_chunk(
                        output + here + output_block * block,
                        gradient + here + gradient_block * block,
                        target + here + 4 * args[at.target_block] * block, inner,
                        min(args[at.channels] - block * LANES, LANES), width, first, second,
                    )  # fmt: skip
