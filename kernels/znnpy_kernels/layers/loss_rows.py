"""Shared code of loss kernels: argument words, and loads of rows of outputs, targets and weights.

`output` (values of the node, blocked) and `gradient` (written, blocked, pad lanes 0; address 0: not wanted) are
addresses in block 0; `*_block`, `*_z`, `*_y` strides in floats; `lanes` is LANES, or 1 where both are planar.
`target` and `weight` are planar float32 [channel][z][y][x] with x contiguous; `weight` 0 means all ones. With
`places` != 0 they are offsets in bytes from the two addresses that stand there (the second 0: all ones), so that the
arrays may change from step to step. `channels` counts real channels, `planes`, `rows`, `width` voxels. `relu_slope`:
that of the output's function where its values are not positive, 1 if others apply that function's gradient.

A voxel of weight 0 has no target: its target may be NaN or Inf. NaN and Inf in `output` are not hidden by a weight
of 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from znnpy_kernels.layers.softmax import blocks_of, zero_pad
from znnpy_kernels.machine.abi import words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import longs
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.transpose import AHEAD, to_rows, to_voxels
from znnpy_kernels.simd.vector_math import exp, larger
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

AT = words(
    "output output_block output_z output_y gradient gradient_block gradient_z gradient_y target "
    "target_image target_z target_y weight weight_image weight_z weight_y normaliser partial "
    "channels planes rows width lanes places bias_gradient bias_block gamma:float ones:float "
    "zeros:float smoothing:float classes relu_slope:float",
)


class Row(NamedTuple):
    """Addresses of a row's first voxel in the first channel; `weight` 0: all weights are 1."""

    output: int
    gradient: int
    target: int
    weight: int


class Voxels(NamedTuple):
    """`width` voxels of a row, at most LANES: the same addresses, and a mask of the lanes that hold a voxel."""

    output: int
    gradient: int
    target: int
    weight: int
    width: int
    inside: Any


@inlined
def _first_target(args: Any) -> Any:
    """Return the address of the part's first target."""
    return args[AT.target] + (longs(args[AT.places])[0] if args[AT.places] else 0)


@inlined
def _first_weight(args: Any) -> Any:
    """Return the address of the part's first weight; 0 where all are 1."""
    if args[AT.places]:
        base = longs(args[AT.places])[1]
        return base + args[AT.weight] if base else 0
    return args[AT.weight]


@inlined
def row_at(args: Any, z: int, y: int) -> Any:
    """Return row y of plane z."""
    weight = _first_weight(args)
    if weight:
        weight += 4 * (z * args[AT.weight_z] + y * args[AT.weight_y])
    return Row(
        args[AT.output] + 4 * (z * args[AT.output_z] + y * args[AT.output_y]),
        args[AT.gradient] + 4 * (z * args[AT.gradient_z] + y * args[AT.gradient_y]),
        _first_target(args) + 4 * (z * args[AT.target_z] + y * args[AT.target_y]),
        weight,
    )


@inlined
def voxels_at(args: Any, row: Any, x: int) -> Any:
    """Return voxels x..x + LANES of a row."""
    # Planar outputs have one float a voxel, blocks LANES.
    width, here = min(args[AT.width] - x, LANES), 4 * x * args[AT.lanes]
    weight = row.weight + 4 * x if row.weight else 0
    return Voxels(
        row.output + here, row.gradient + here, row.target + 4 * x, weight, width, below(width)
    )


@inlined
def _block_step(args: Any, stride: int) -> int:
    """Return the bytes from one LANES channels to the next, where blocks or planar channels are `stride` apart."""
    return 4 * stride * (LANES if args[AT.lanes] == 1 else 1)


@inlined
def weights_of(args: Any, voxels: Any, image: int) -> Any:
    """Return the weights of voxels in a channel, 0 outside."""
    inside = voxels.inside
    if voxels.weight:
        address = voxels.weight + 4 * image * args[AT.weight_image]
        # Planar channels are many streams, which the hardware does not follow.
        prefetch(address + AHEAD)
        return load_masked(address, inside)
    return select(inside, splat(1.0), splat(0.0))


@inlined
def targets_of(args: Any, voxels: Any, image: int, weight: Any) -> Any:
    """Return targets in a channel where the weight is not 0, else 0: a product with 0 would keep NaN."""
    target = voxels.target + 4 * image * args[AT.target_image]
    prefetch(target + AHEAD)
    # Selected: NaN times a weight of 0 would be NaN.
    return select(weight != splat(0.0), load_masked(target, voxels.inside), splat(0.0))


@inlined
def load_block(args: Any, voxels: Any, block: int, tile: int) -> Any:
    """Load a block of voxels transposed (tile row c = channel c); return how many channels are real."""
    real = min(args[AT.channels] - block * LANES, LANES)
    source = voxels.output + block * _block_step(args, args[AT.output_block])
    if args[AT.lanes] == 1:
        for c in range(real):
            value = load_masked(source + 4 * args[AT.output_block] * c, voxels.inside)
            store(tile + VECTOR_BYTES * c, value)
    else:
        to_rows(source, voxels.width, tile)
    return real


@inlined
def store_block(args: Any, tile: int, voxels: Any, block: int, real: int) -> None:
    """Store a tile to the gradient, the reverse of `load_block`; pad lanes become 0."""
    target = voxels.gradient + block * _block_step(args, args[AT.gradient_block])
    if args[AT.lanes] == 1:
        for c in range(real):
            value, here = load(tile + VECTOR_BYTES * c), target + 4 * args[AT.gradient_block] * c
            # Stores with masks take many times as long where vectors have 8 lanes.
            if voxels.width == LANES:
                store(here, value)
            else:
                store_masked(here, voxels.inside, value)
    else:
        # Pad lanes of the gradient stay 0, as every block's do.
        zero_pad(tile, real)
        to_voxels(tile, target, voxels.width)


@inlined
def exp_sum(args: Any, voxels: Any, largest: Any, tile: int) -> Any:
    """Return the sum over channels of e^(value - largest)."""
    sums = splat(0.0)
    for block in range(blocks_of(args[AT.channels])):
        real = load_block(args, voxels, block, tile)
        for c in range(real):
            # At most e^0: nothing overflows.
            sums = sums + exp(load(tile + VECTOR_BYTES * c) - largest)
    return sums


@inlined
def scanned(args: Any, voxels: Any, weight: Any, tile: int, counted: Any) -> Any:
    """Return the largest logit, sums of what targets count and of that * logit, and where the two argmaxes differ.

    `counted(args, t, c)`: what target t of channel c counts.
    """
    # The smallest float32, not -Inf: -Inf - (-Inf) would be NaN where all values are -Inf.
    lowest = splat(-3.4028234663852886e38)
    largest, truest = lowest, lowest
    mass, product, best, true = splat(0.0), splat(0.0), splat(0.0), splat(0.0)
    for block in range(blocks_of(args[AT.channels])):
        real = load_block(args, voxels, block, tile)
        for i in range(real):
            c = block * LANES + i
            x, number = load(tile + VECTOR_BYTES * i), splat(float(c))
            t = targets_of(args, voxels, c, weight)
            # The first of equal values wins, as comparisons are strict.
            best, largest = select(x > largest, number, best), larger(x, largest)
            true, truest = select(t > truest, number, true), larger(t, truest)
            q = counted(args, t, c)
            mass, product = mass + q, product + q * x
    return largest, mass, product, best != true
