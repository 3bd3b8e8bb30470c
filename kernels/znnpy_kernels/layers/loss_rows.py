"""What the kernels of losses share: their words, and how they read rows of outputs, targets and weights.

`output` (values of the node, blocked) and `gradient` (written, blocked, pad lanes 0; address 0: not
wanted) are addresses in block 0; `*_block`, `*_z`, `*_y` strides in floats; `lanes` is LANES, or 1
where both are planar. `target` and `weight` are planar float32 [image][z][y][x] with x contiguous;
`weight` 0 means all ones. With `places` != 0 they are offsets in bytes from the two addresses that
stand there (the second 0: all ones), so that the arrays may change from step to step. `channels` counts
real channels, `planes`, `rows`, `width` voxels.

What weighs 0 has no target: its target may be NaN or Inf. NaN and Inf in `output` are not hidden by a
weight of 0.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.layers.softmax import blocks_of, zero_pad
from znnpy_kernels.machine.abi import words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import longs
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.transpose import AHEAD, to_rows, to_voxels
from znnpy_kernels.simd.vector_math import exp
from znnpy_kernels.simd.vectors import (
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
    "zeros:float smoothing:float classes",
)


@inlined
def first_target(args: Any) -> Any:
    """Address of the part's first target."""
    return args[AT.target] + (longs(args[AT.places])[0] if args[AT.places] else 0)


@inlined
def first_weight(args: Any) -> Any:
    """Address of the part's first weight; 0 where all are 1."""
    if args[AT.places]:
        base = longs(args[AT.places])[1]
        return base + args[AT.weight] if base else 0
    return args[AT.weight]


@inlined
def load_rows(
    args: Any, source: int, step: int, real: int, width: int, inside: Any, tile: int
) -> None:
    """Tile row c = channel c of a block; `step`: bytes between planar images."""
    if args[AT.lanes] == 1:
        for c in range(real):
            store(tile + VECTOR_BYTES * c, load_masked(source + step * c, inside))
    else:
        to_rows(source, width, tile)


@inlined
def store_rows(
    args: Any, tile: int, target: int, step: int, real: int, width: int, inside: Any
) -> None:
    """The way back of `load_rows`; pad lanes become 0."""
    if args[AT.lanes] == 1:
        for c in range(real):
            store_masked(target + step * c, inside, load(tile + VECTOR_BYTES * c))
    else:
        zero_pad(tile, real)
        to_voxels(tile, target, width)


@inlined
def block_step(args: Any, stride: int) -> int:
    """Bytes from one LANES channels to the next, where blocks or planar images are `stride` apart."""
    return 4 * stride * (LANES if args[AT.lanes] == 1 else 1)


@inlined
def weights_at(address: int, inside: Any) -> Any:
    """Weights of LANES voxels, 0 outside; address 0: all 1."""
    if address:
        prefetch(address + AHEAD)
        return load_masked(address, inside)
    return select(inside, splat(1.0), splat(0.0))


@inlined
def target_at(target: int, inside: Any, weight: Any) -> Any:
    """Targets where the weight is not 0, else 0: a product with 0 would keep NaN."""
    return select(weight != splat(0.0), load_masked(target, inside), splat(0.0))


@inlined
def load_block(args: Any, output: int, block: int, width: int, inside: Any, tile: int) -> Any:
    """Tile row c = channel c of a block of LANES voxels; how many channels are real."""
    real = min(args[AT.channels] - block * LANES, LANES)
    step = block * block_step(args, args[AT.output_block])
    load_rows(args, output + step, 4 * args[AT.output_block], real, width, inside, tile)
    return real


@inlined
def store_block(
    args: Any, tile: int, gradient: int, block: int, real: int, width: int, inside: Any
) -> None:
    """The way back of `load_block`, to the gradient."""
    step = block * block_step(args, args[AT.gradient_block])
    store_rows(args, tile, gradient + step, 4 * args[AT.gradient_block], real, width, inside)


@inlined
def exp_sum(args: Any, output: int, largest: Any, inside: Any, width: int, tile: int) -> Any:
    """Sum over images of e^(value - largest)."""
    sums = splat(0.0)
    for block in range(blocks_of(args[AT.channels])):
        real = load_block(args, output, block, width, inside, tile)
        for c in range(real):
            sums = sums + exp(load(tile + VECTOR_BYTES * c) - largest)
    return sums
