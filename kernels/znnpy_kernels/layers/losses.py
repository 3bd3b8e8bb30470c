"""Losses on one image of an output node: gradient for the logits, weighted sums for the mean.

All kernels share `LOSS_FIELDS`. `output` (values of the node, blocked) and `gradient` (written,
blocked, pad lanes 0; address 0: only the sums, for validation) are addresses in block 0;
`*_block`, `*_z`, `*_y` strides in floats; `lanes` is LANES, or 1 where both are planar. `target` and
`weight` are planar float32 [image][z][y][x] with x contiguous; `weight` 0 means all ones. With
`places` != 0 they are offsets in bytes from the two addresses that stand there (the second 0: all
ones), so that the arrays may change from step to step. `normaliser` is the address of one
float32, 1 / (sum of weights). `partial` gets two float64: the sum of weight * loss and the sum of
weight * wrong over the part, not multiplied by the normaliser. `channels` counts real channels,
`planes`, `rows`, `width` voxels. `bias_gradient` (elementwise losses; 0: not wanted) gets the sum of
the gradient over the part for each channel, LANES floats a block, pad 0, blocks `bias_block` floats apart.

A loss is the weighted mean over voxels and output images, so the sum of weights runs over voxels
and images; for softmax it is the weighted mean over voxels and the weight is read from the first
image only. What weighs 0 has no target: its target may be NaN or Inf. NaN and Inf in `output` are not
hidden by a weight of 0.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.layers.softmax import blocks_of, zero_pad
from znnpy_kernels.machine.abi import Kernel, kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import doubles, floats, longs
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.transpose import AHEAD, scratch_tile, to_rows, to_voxels, transpose_tile
from znnpy_kernels.simd.vector_math import exp, larger, log, log1p, logistic
from znnpy_kernels.simd.vectors import (
    absolute,
    below,
    load,
    load_masked,
    prefetch,
    select,
    splat,
    store,
    store_masked,
    to_doubles,
    total,
    zero_doubles,
)

AT = words(
    "output output_block output_z output_y gradient gradient_block gradient_z gradient_y target "
    "target_image target_z target_y weight weight_image weight_z weight_y normaliser partial "
    "channels planes rows width lanes places bias_gradient bias_block",
)


@inlined
def _square(x: Any, t: Any) -> Any:
    difference = x - t
    wrong = (x > splat(0.5)) ^ (t > splat(0.5))
    return difference * difference, difference + difference, wrong


@inlined
def _binomial(x: Any, t: Any) -> Any:
    e = exp(-absolute(x))
    loss = larger(x, splat(0.0)) - x * t + log1p(e)
    return loss, logistic(x) - t, (x > splat(0.0)) ^ (t > splat(0.5))


@inlined
def _target(args: Any) -> Any:
    """Address of the part's first target."""
    return args[AT.target] + (longs(args[AT.places])[0] if args[AT.places] else 0)


@inlined
def _weight(args: Any) -> Any:
    """Address of the part's first weight; 0 where all are 1."""
    if args[AT.places]:
        base = longs(args[AT.places])[1]
        return base + args[AT.weight] if base else 0
    return args[AT.weight]


@inlined
def _load_rows(
    args: Any, source: int, step: int, real: int, width: int, inside: Any, tile: int
) -> None:
    """Tile row c = channel c of a block; `step`: bytes between planar images."""
    if args[AT.lanes] == 1:
        for c in range(real):
            store(tile + VECTOR_BYTES * c, load_masked(source + step * c, inside))
    else:
        to_rows(source, width, tile)


@inlined
def _store_rows(
    args: Any, tile: int, target: int, step: int, real: int, width: int, inside: Any
) -> None:
    if args[AT.lanes] == 1:
        for c in range(real):
            store_masked(target + step * c, inside, load(tile + VECTOR_BYTES * c))
    else:
        zero_pad(tile, real)
        to_voxels(tile, target, width)


@inlined
def _block_step(args: Any, stride: int) -> int:
    """Bytes from one LANES channels to the next, where blocks or planar images are `stride` apart."""
    return 4 * stride * (LANES if args[AT.lanes] == 1 else 1)


@inlined
def _weights(address: int, inside: Any) -> Any:
    if address:
        prefetch(address + AHEAD)
        return load_masked(address, inside)
    return select(inside, splat(1.0), splat(0.0))


@inlined
def _truth(target: int, inside: Any, weight: Any) -> Any:
    """Targets where the weight is not 0, else 0: a product with 0 would keep NaN."""
    return select(weight != splat(0.0), load_masked(target, inside), splat(0.0))


@inlined
def _elementwise_chunk(
    args: Any, loss: Any, tile: int, target: int, weight: int, real: int, inside: Any, sums: Any,
    biases: int,
) -> Any:  # fmt: skip
    """One tile: gradients replace the logits and are added to row c of `biases`; the two sums."""
    normaliser = splat(floats(args[AT.normaliser])[0])
    losses, wrongs = sums
    for c in range(real):
        w = _weights(weight + 4 * c * args[AT.weight_image] if weight else 0, inside)
        truth = _truth(target + 4 * c * args[AT.target_image], inside, w)
        prefetch(target + 4 * c * args[AT.target_image] + AHEAD)
        value, slope, wrong = loss(load(tile + VECTOR_BYTES * c), truth)
        losses = losses + to_doubles(select(inside, w * value, splat(0.0)))
        wrongs = wrongs + to_doubles(select(wrong, w, splat(0.0)))
        gradient = slope * (w * normaliser)
        store(tile + VECTOR_BYTES * c, gradient)
        if args[AT.bias_gradient]:
            held = load(biases + VECTOR_BYTES * c)
            store(biases + VECTOR_BYTES * c, held + select(inside, gradient, splat(0.0)))
    return losses, wrongs


@inlined
def _elementwise_row(
    args: Any, loss: Any, tile: int, biases: int, block: int, z: int, y: int, sums: Any
) -> Any:
    real = min(args[AT.channels] - block * LANES, LANES)
    image = block * LANES
    output = (
        args[AT.output]
        + block * _block_step(args, args[AT.output_block])
        + 4 * (z * args[AT.output_z] + y * args[AT.output_y])
    )
    gradient = (
        args[AT.gradient]
        + block * _block_step(args, args[AT.gradient_block])
        + 4 * (z * args[AT.gradient_z] + y * args[AT.gradient_y])
    )
    target = _target(args) + 4 * (
        image * args[AT.target_image] + z * args[AT.target_z] + y * args[AT.target_y]
    )
    weight = _weight(args)
    weight = (
        weight + 4 * (image * args[AT.weight_image] + z * args[AT.weight_z] + y * args[AT.weight_y])
        if weight
        else 0
    )
    for x in range(0, args[AT.width], LANES):
        width = min(args[AT.width] - x, LANES)
        inside, here = below(width), 4 * x * args[AT.lanes]
        _load_rows(args, output + here, 4 * args[AT.output_block], real, width, inside, tile)
        sums = _elementwise_chunk(
            args, loss, tile, target + 4 * x, weight + 4 * x if weight else 0, real, inside, sums,
            biases,
        )  # fmt: skip
        if args[AT.gradient]:
            _store_rows(
                args, tile, gradient + here, 4 * args[AT.gradient_block], real, width, inside
            )
    return sums


@inlined
def _elementwise(args: Any, tile: int, biases: int, loss: Any) -> None:
    sums = zero_doubles(), zero_doubles()
    for block in range(blocks_of(args[AT.channels])):
        zero_pad(biases, 0)
        for z in range(args[AT.planes]):
            for y in range(args[AT.rows]):
                sums = _elementwise_row(args, loss, tile, biases, block, z, y, sums)
        if args[AT.bias_gradient]:
            transpose_tile(biases, VECTOR_BYTES, biases, VECTOR_BYTES)
            total_ = splat(0.0)
            for position in range(LANES):
                total_ = total_ + load(biases + VECTOR_BYTES * position)
            store(args[AT.bias_gradient] + 4 * block * args[AT.bias_block], total_)
    doubles(args[AT.partial])[0] = total(sums[0])
    doubles(args[AT.partial])[1] = total(sums[1])


@kernel(AT)
def square_loss(args: Any, worker: int) -> None:
    """(y - t)^2, gradient 2 (y - t) w normaliser; wrong where (y > 0.5) differs from (t > 0.5)."""
    _elementwise(args, scratch_tile(), scratch_tile(), _square)


@kernel(AT)
def binomial_cross_entropy_loss(args: Any, worker: int) -> None:
    """-t log p - (1 - t) log(1 - p), p = logistic(x); wrong where (x > 0) differs from (t > 0.5).

    Computed as max(x, 0) - x t + log1p(e^-|x|): stable for any x. Gradient (p - t) w normaliser.
    """
    _elementwise(args, scratch_tile(), scratch_tile(), _binomial)


@inlined
def _class_sums(
    args: Any, output: int, target: int, weight: Any, inside: Any, width: int, tile: int
) -> Any:
    """Largest logit, sum of targets, sum of target * logit, and where the two argmaxes differ."""
    lowest = splat(-3.4028234663852886e38)
    largest, truest = lowest, lowest
    mass, product = splat(0.0), splat(0.0)
    best, true = splat(0.0), splat(0.0)
    for block in range(blocks_of(args[AT.channels])):
        real = min(args[AT.channels] - block * LANES, LANES)
        step = block * _block_step(args, args[AT.output_block])
        _load_rows(args, output + step, 4 * args[AT.output_block], real, width, inside, tile)
        for c in range(real):
            number = splat(float(block * LANES + c))
            x = load(tile + VECTOR_BYTES * c)
            t = _truth(target + 4 * (block * LANES + c) * args[AT.target_image], inside, weight)
            prefetch(target + 4 * (block * LANES + c) * args[AT.target_image] + AHEAD)
            best, largest = select(x > largest, number, best), larger(x, largest)
            true, truest = select(t > truest, number, true), larger(t, truest)
            mass, product = mass + t, product + t * x
    return largest, mass, product, best != true


@inlined
def _exp_sum(args: Any, output: int, largest: Any, inside: Any, width: int, tile: int) -> Any:
    sums = splat(0.0)
    for block in range(blocks_of(args[AT.channels])):
        real = min(args[AT.channels] - block * LANES, LANES)
        step = block * _block_step(args, args[AT.output_block])
        _load_rows(args, output + step, 4 * args[AT.output_block], real, width, inside, tile)
        for c in range(real):
            sums = sums + exp(load(tile + VECTOR_BYTES * c) - largest)
    return sums


@inlined
def _softmax_gradient(
    args: Any, output: int, gradient: int, target: int, largest: Any, scale: Any, weight: Any,
    inside: Any, width: int, tile: int,
) -> None:  # fmt: skip
    """gradient = exp(x - largest) * scale - t * weight."""
    for block in range(blocks_of(args[AT.channels])):
        real = min(args[AT.channels] - block * LANES, LANES)
        step = block * _block_step(args, args[AT.output_block])
        _load_rows(args, output + step, 4 * args[AT.output_block], real, width, inside, tile)
        for c in range(real):
            t = _truth(target + 4 * (block * LANES + c) * args[AT.target_image], inside, weight)
            p = exp(load(tile + VECTOR_BYTES * c) - largest) * scale
            store(tile + VECTOR_BYTES * c, p - t * weight)
        step = block * _block_step(args, args[AT.gradient_block])
        _store_rows(args, tile, gradient + step, 4 * args[AT.gradient_block], real, width, inside)


@inlined
def _softmax_chunk(
    args: Any, output: int, gradient: int, target: int, weight: int, width: int, tile: int,
    sums: Any,
) -> Any:  # fmt: skip
    inside = below(width)
    w = _weights(weight, inside)
    largest, mass, product, wrong = _class_sums(args, output, target, w, inside, width, tile)
    exponentials = _exp_sum(args, output, largest, inside, width, tile)
    value = w * ((log(exponentials) + largest) * mass - product)
    losses = sums[0] + to_doubles(select(inside, value, splat(0.0)))
    wrongs = sums[1] + to_doubles(select(wrong, w, splat(0.0)))
    if args[AT.gradient]:
        w = w * splat(floats(args[AT.normaliser])[0])
        _softmax_gradient(args, output, gradient, target, largest, w * mass / exponentials, w,
                          inside, width, tile)  # fmt: skip
    return losses, wrongs


@kernel(AT)
def softmax_loss(args: Any, worker: int) -> None:
    """-sum over images of t log softmax(x); targets are probabilities or one-hot over images.

    Gradient (softmax * sum(t) - t) w normaliser. Wrong where the argmaxes differ (the first wins).
    """
    tile = scratch_tile()
    sums = zero_doubles(), zero_doubles()
    for z in range(args[AT.planes]):
        for y in range(args[AT.rows]):
            output = args[AT.output] + 4 * (z * args[AT.output_z] + y * args[AT.output_y])
            gradient = args[AT.gradient] + 4 * (z * args[AT.gradient_z] + y * args[AT.gradient_y])
            target = _target(args) + 4 * (z * args[AT.target_z] + y * args[AT.target_y])
            weight = _weight(args)
            weight = weight + 4 * (z * args[AT.weight_z] + y * args[AT.weight_y]) if weight else 0
            for x in range(0, args[AT.width], LANES):
                here = 4 * x * args[AT.lanes]
                sums = _softmax_chunk(
                    args, output + here, gradient + here, target + 4 * x,
                    weight + 4 * x if weight else 0, min(args[AT.width] - x, LANES), tile, sums,
                )  # fmt: skip
    doubles(args[AT.partial])[0] = total(sums[0])
    doubles(args[AT.partial])[1] = total(sums[1])


SUM_PARTIALS = words("partials count normaliser target")


@kernel(SUM_PARTIALS)
def sum_partials(args: Any, worker: int) -> None:
    """Add `count` pairs of float64 in order into two float64 at `target`, times the normaliser.

    `normaliser`: address of one float32, or 0 for plain sums.
    """
    at = SUM_PARTIALS
    losses, wrongs = 0.0, 0.0
    for i in range(args[at.count]):
        losses += doubles(args[at.partials])[2 * i]
        wrongs += doubles(args[at.partials])[2 * i + 1]
    scale = floats(args[at.normaliser])[0] if args[at.normaliser] else 1.0
    doubles(args[at.target])[0] = losses * scale
    doubles(args[at.target])[1] = wrongs * scale


LOSSES: dict[str, Kernel] = {
    "square": square_loss,
    "binomial_cross_entropy": binomial_cross_entropy_loss,
    "softmax": softmax_loss,
}
