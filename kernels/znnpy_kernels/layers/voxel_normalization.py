"""Normalisation of each voxel over its channels, forward and backward.

y = u * scale + shift, u = (x + bias - mean) * inverse. Of `centred` 1 mean and variance are over all channels, and
inverse = 1 / sqrt(variance + epsilon); of 0 the mean is 0, and inverse = 1 / max(length, epsilon), where length is the
root of the sum of squares. Rows are taken LANES voxels at a time and transposed, as in `softmax`, whose words these
are; `bias`, `scale`, `shift`: addresses of block after block, or 0. Then, as they lie, all voxels are normalised.

Backward the gradient is replaced in place, and a part leaves SUMS float64 for each block at `sums`, by lane: sums of
the gradients by scale, by shift and by bias.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.layers.softmax import add_bias, blocks_of
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import doubles, float_argument, floats
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.transpose import scratch_tile, to_rows
from znnpy_kernels.simd.vector_math import larger
from znnpy_kernels.simd.vectors import (
    below,
    fma,
    load,
    load_doubles,
    load_masked,
    select,
    splat,
    sqrt,
    store,
    store_doubles,
    to_doubles,
)

SUMS = 3 * LANES
"""Float64 that a part leaves of each block: sums of gradients by scale, by shift and by bias."""

# Rows of the tile in which numbers of each of LANES voxels are kept.
MEAN, INVERSE, PLAIN, ALONG = 0, VECTOR_BYTES, 2 * VECTOR_BYTES, 3 * VECTOR_BYTES

FORWARD = words(
    "source source_block source_z source_y target target_block target_z target_y bias scale shift channels "
    "planes rows width centred epsilon:float"
)
BACKWARD = words(
    "source source_block source_z source_y gradient gradient_block gradient_z gradient_y bias scale channels "
    "planes rows width centred epsilon:float sums"
)


@inlined
def _real(channels: int, block: int) -> int:
    real: int = min(channels - block * LANES, LANES)
    return real


@inlined
def _of_block(address: int, block: int, real: Any, default: float) -> Any:
    found = splat(default)
    if address:
        found = load_masked(address + VECTOR_BYTES * block, real)
    return found


@inlined
def _rows_of(
    source: int, step: int, bias: int, block: int, channels: int, width: int, tile: int
) -> int:
    """Write the channels of a block to the rows of a tile; return how many there are."""
    real: int = _real(channels, block)
    to_rows(source + step * block, width, tile)
    add_bias(tile, bias + VECTOR_BYTES * block if bias else 0, real)
    return real


@inlined
def _mean(source: int, step: int, bias: int, channels: int, width: int, tile: int) -> Any:
    sums = splat(0.0)
    for block in range(blocks_of(channels)):
        for c in range(_rows_of(source, step, bias, block, channels, width, tile)):
            sums = sums + load(tile + VECTOR_BYTES * c)
    return sums / splat(float(channels))


@inlined
def _inverse(squares: Any, channels: int, centred: int, epsilon: float) -> Any:
    """Return what is multiplied with, from the sum of squares of what is normalised."""
    found = splat(1.0) / larger(sqrt(squares), splat(epsilon))
    if centred:
        found = splat(1.0) / sqrt(squares / splat(float(channels)) + splat(epsilon))
    return found


@inlined
def _measure(
    source: int, step: int, bias: int, channels: int, width: int, centred: int, epsilon: float,
    tile: int, kept: int,
) -> None:  # fmt: skip
    """Keep mean and inverse of LANES voxels."""
    mean, squares = splat(0.0), splat(0.0)
    if centred:
        mean = _mean(source, step, bias, channels, width, tile)
    for block in range(blocks_of(channels)):
        for c in range(_rows_of(source, step, bias, block, channels, width, tile)):
            away = load(tile + VECTOR_BYTES * c) - mean
            squares = fma(away, away, squares)
    store(kept + MEAN, mean)
    store(kept + INVERSE, _inverse(squares, channels, centred, epsilon))


@kernel(FORWARD)
def voxel_norm_forward(args: Any, worker: int) -> None:
    """Write u * scale + shift; `source` and `target` may be the same, pad lanes are written as 0."""
    at = FORWARD
    tile, kept = scratch_tile(), scratch_tile()
    numbers = floats(kept)
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            source = args[at.source] + 4 * (z * args[at.source_z] + y * args[at.source_y])
            target = args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y])
            for x in range(0, args[at.width], LANES):
                width, first = min(args[at.width] - x, LANES), VECTOR_BYTES * x
                _measure(
                    source + first, 4 * args[at.source_block], args[at.bias], args[at.channels],
                    width, args[at.centred], float_argument(args[at.epsilon]), tile, kept,
                )  # fmt: skip
                for block in range(blocks_of(args[at.channels])):
                    real = below(_real(args[at.channels], block))
                    bias = _of_block(args[at.bias], block, real, 0.0)
                    scale = _of_block(args[at.scale], block, real, 1.0)
                    shift = _of_block(args[at.shift], block, real, 0.0)
                    here = source + first + 4 * args[at.source_block] * block
                    there = target + first + 4 * args[at.target_block] * block
                    for voxel in range(width):
                        away = load(here + VECTOR_BYTES * voxel) + bias - splat(numbers[voxel])
                        unit = away * splat(numbers[LANES + voxel])
                        made = select(real, fma(unit, scale, shift), splat(0.0))
                        store(there + VECTOR_BYTES * voxel, made)


@inlined
def _measure_gradient(
    source: int, step: int, gradient: int, gradient_step: int, bias: int, scale: int, channels: int,
    width: int, centred: int, epsilon: float, tile: int, other: int, kept: int,
) -> None:  # fmt: skip
    """Keep mean and inverse of LANES voxels, and what their gradients lose: a constant, and what goes with u."""
    mean, squares, plain, along = splat(0.0), splat(0.0), splat(0.0), splat(0.0)
    if centred:
        mean = _mean(source, step, bias, channels, width, tile)
    for block in range(blocks_of(channels)):
        to_rows(gradient + gradient_step * block, width, other)
        for c in range(_rows_of(source, step, bias, block, channels, width, tile)):
            away, through = load(tile + VECTOR_BYTES * c) - mean, load(other + VECTOR_BYTES * c)
            if scale:
                through = through * splat(floats(scale)[block * LANES + c])
            squares = fma(away, away, squares)
            plain, along = plain + through, fma(through, away, along)
    inverse = _inverse(squares, channels, centred, epsilon)
    along = along * inverse
    if centred:
        plain, along = plain / splat(float(channels)), along / splat(float(channels))
    else:
        # The shortest are divided by a constant.
        plain, along = splat(0.0), select(sqrt(squares) > splat(epsilon), along, splat(0.0))
    store(kept + MEAN, mean)
    store(kept + INVERSE, inverse)
    store(kept + PLAIN, plain)
    store(kept + ALONG, along)


@inlined
def _add(address: int, more: Any) -> None:
    store_doubles(address, load_doubles(address) + to_doubles(more))


@kernel(BACKWARD)
def voxel_norm_backward(args: Any, worker: int) -> None:
    """Replace the gradient by y by that by x; leave the sums of each block."""
    at = BACKWARD
    tile, other, kept = scratch_tile(), scratch_tile(), scratch_tile()
    numbers, sums = floats(kept), doubles(args[at.sums])
    for i in range(SUMS * blocks_of(args[at.channels])):
        sums[i] = 0.0
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            source = args[at.source] + 4 * (z * args[at.source_z] + y * args[at.source_y])
            gradient = args[at.gradient] + 4 * (z * args[at.gradient_z] + y * args[at.gradient_y])
            for x in range(0, args[at.width], LANES):
                width, first = min(args[at.width] - x, LANES), VECTOR_BYTES * x
                _measure_gradient(
                    source + first, 4 * args[at.source_block], gradient + first,
                    4 * args[at.gradient_block], args[at.bias], args[at.scale], args[at.channels],
                    width, args[at.centred], float_argument(args[at.epsilon]), tile, other, kept,
                )  # fmt: skip
                for block in range(blocks_of(args[at.channels])):
                    real = below(_real(args[at.channels], block))
                    bias = _of_block(args[at.bias], block, real, 0.0)
                    scale = _of_block(args[at.scale], block, real, 1.0)
                    here = source + first + 4 * args[at.source_block] * block
                    there = gradient + first + 4 * args[at.gradient_block] * block
                    by_scale, by_shift, by_bias = splat(0.0), splat(0.0), splat(0.0)
                    for voxel in range(width):
                        given = load(there + VECTOR_BYTES * voxel)
                        inverse = splat(numbers[LANES + voxel])
                        away = load(here + VECTOR_BYTES * voxel) + bias - splat(numbers[voxel])
                        unit = away * inverse
                        along = splat(numbers[3 * LANES + voxel])
                        lost = fma(unit, along, splat(numbers[2 * LANES + voxel]))
                        made = select(real, (given * scale - lost) * inverse, splat(0.0))
                        store(there + VECTOR_BYTES * voxel, made)
                        by_scale, by_shift = fma(given, unit, by_scale), by_shift + given
                        by_bias = by_bias + made
                    place = args[at.sums] + 8 * SUMS * block
                    _add(place, by_scale)
                    _add(place + 8 * LANES, by_shift)
                    _add(place + 16 * LANES, by_bias)


MERGED = words("leaves leaf_step parts channels scale_gradient shift_gradient bias_gradient")


@inlined
def _merge(args: Any, channel: int, which: int, target: int) -> None:
    at = MERGED
    place = args[at.leaves] + 8 * (SUMS * (channel // LANES) + which * LANES)
    found = doubles(place)[channel % LANES]
    for part in range(1, args[at.parts]):
        found += doubles(place + part * args[at.leaf_step])[channel % LANES]
    floats(target)[channel] = found


@kernel(MERGED)
def merged_voxel_gradients(args: Any, worker: int) -> None:
    """Write the gradients of all channels from the sums of `parts` parts, `leaf_step` bytes apart, in their order.

    Those of address 0 are not wanted.
    """
    at = MERGED
    for channel in range(args[at.channels]):
        if args[at.scale_gradient]:
            _merge(args, channel, 0, args[at.scale_gradient])
        if args[at.shift_gradient]:
            _merge(args, channel, 1, args[at.shift_gradient])
        if args[at.bias_gradient]:
            _merge(args, channel, 2, args[at.bias_gradient])
