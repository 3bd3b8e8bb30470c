"""Dice losses (overlap), alone or with cross-entropy: kernels for sums, loss and slopes, gradient.

Three kernels, since sums over whole channels come first: sums over a part (`*_sums`), the loss and each channel's
slopes from all sums (`overlap_total`), and the gradient (`*_gradient`). The overlap of a channel is (2 I + smooth) /
(P + T + smooth), with I = sum of w p t, P = sum of w p, T = sum of w t, and p the logistic, or the share by softmax.
The words are those of `loss_rows`, and: `partial` gets two float64, the sums of weight * cross-entropy and of weight
* wrong, and I, P, T of each channel; `slopes` is the address of two float32 a and b for each channel, the loss's
slope by p being w (a t + b); `entropy` is the factor of the cross-entropy.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.layers.loss_rows import (
    AT as ROWS,
)
from znnpy_kernels.layers.loss_rows import (
    exp_sum,
    load_block,
    row_at,
    scanned,
    store_block,
    targets_of,
    voxels_at,
    weights_of,
)
from znnpy_kernels.layers.softmax import blocks_of
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.arithmetic import quotient
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import doubles, float_argument, floats
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.transpose import scratch_tile
from znnpy_kernels.simd.vector_math import exp, larger, log, log1p, logistic
from znnpy_kernels.simd.vectors import (
    absolute,
    load,
    select,
    splat,
    store,
    to_doubles,
    total,
)

AT = words(ROWS, "slopes entropy:float")
# An order that `_add_overlap` writes and `overlap_total` reads.
SUMS = 3  # I, P and T


@inlined
def _add(place: int, value: Any) -> None:
    """Add the sum of LANES floats to a float64."""
    # In float64: sums over whole volumes of values near 1.
    doubles(place)[0] += total(to_doubles(value))


@inlined
def _add_overlap(args: Any, c: int, inside: Any, weight: Any, p: Any, t: Any) -> None:
    sums = args[AT.partial] + 8 * (2 + SUMS * c)
    # Selected, as logistic values of lanes outside are not 0.
    _add(sums, select(inside, weight * p * t, splat(0.0)))
    _add(sums + 8, select(inside, weight * p, splat(0.0)))
    _add(sums + 16, weight * t)


@inlined
def _clear(args: Any) -> None:
    # Partial sums grow over the part, so zeros first.
    for i in range(2 + SUMS * args[AT.channels]):
        doubles(args[AT.partial])[i] = 0.0


@inlined
def _each_chunk(args: Any, tile: int, chunk: Any) -> None:
    """Call `chunk` for all voxels."""
    for z in range(args[AT.planes]):
        for y in range(args[AT.rows]):
            row = row_at(args, z, y)
            for x in range(0, args[AT.width], LANES):
                chunk(args, voxels_at(args, row, x), tile)


@inlined
def _logistic_sums(args: Any, voxels: Any, tile: int) -> None:
    for block in range(blocks_of(args[AT.channels])):
        real = load_block(args, voxels, block, tile)
        for i in range(real):
            c = block * LANES + i
            w = weights_of(args, voxels, c)
            t = targets_of(args, voxels, c, w)
            x = load(tile + VECTOR_BYTES * i)
            # As in `losses._binomial`: stable for any x.
            loss = larger(x, splat(0.0)) - x * t + log1p(exp(-absolute(x)))
            wrong = (x > splat(0.0)) ^ (t > splat(0.5))
            _add(args[AT.partial], select(voxels.inside, w * loss, splat(0.0)))
            _add(args[AT.partial] + 8, select(wrong, w, splat(0.0)))
            _add_overlap(args, c, voxels.inside, w, logistic(x), t)


@kernel(AT)
def overlap_sums(args: Any, worker: int) -> None:
    """Write the sums over a part, each channel by itself."""
    _clear(args)
    _each_chunk(args, scratch_tile(), _logistic_sums)


@inlined
def _plain(args: Any, t: Any, c: int) -> Any:
    return t


@inlined
def _softmax_sums(args: Any, voxels: Any, tile: int) -> None:
    w = weights_of(args, voxels, 0)
    largest, mass, product, wrong = scanned(args, voxels, w, tile, _plain)
    logs = largest + log(exp_sum(args, voxels, largest, tile))
    _add(args[AT.partial], select(voxels.inside, w * (logs * mass - product), splat(0.0)))
    _add(args[AT.partial] + 8, select(wrong, w, splat(0.0)))
    for block in range(blocks_of(args[AT.channels])):
        real = load_block(args, voxels, block, tile)
        for i in range(real):
            c = block * LANES + i
            t = targets_of(args, voxels, c, w)
            _add_overlap(args, c, voxels.inside, w, exp(load(tile + VECTOR_BYTES * i) - logs), t)


@kernel(AT)
def overlap_softmax_sums(args: Any, worker: int) -> None:
    """Write the sums over a part, of softmax shares over channels."""
    _clear(args)
    _each_chunk(args, scratch_tile(), _softmax_sums)


@inlined
def _slope(args: Any, c: int, t: Any) -> Any:
    pair = floats(args[AT.slopes] + 8 * c)
    return splat(pair[0]) * t + splat(pair[1])


@inlined
def _entropy(args: Any) -> Any:
    # Entropy's factor times the normaliser of its mean.
    return splat(float_argument(args[AT.entropy]) * floats(args[AT.normaliser])[0])


@inlined
def _logistic_gradient(args: Any, voxels: Any, tile: int) -> None:
    for block in range(blocks_of(args[AT.channels])):
        real = load_block(args, voxels, block, tile)
        for i in range(real):
            c = block * LANES + i
            w = weights_of(args, voxels, c)
            t = targets_of(args, voxels, c, w)
            x = load(tile + VECTOR_BYTES * i)
            p = logistic(x)
            # p (1 - p) by the logistic of -x: no digits are lost where p is near 1.
            slope = _slope(args, c, t) * p * logistic(-x) + _entropy(args) * (p - t)
            store(tile + VECTOR_BYTES * i, w * slope)
        store_block(args, tile, voxels, block, real)


@kernel(AT)
def overlap_gradient(args: Any, worker: int) -> None:
    """Write w ((a t + b) p (1 - p) + entropy normaliser (p - t)), p = logistic(x)."""
    _each_chunk(args, scratch_tile(), _logistic_gradient)


@inlined
def _softmax_gradient(args: Any, voxels: Any, tile: int) -> None:
    w = weights_of(args, voxels, 0)
    largest, mass, _, _ = scanned(args, voxels, w, tile, _plain)
    logs = largest + log(exp_sum(args, voxels, largest, tile))
    # The sum of p g over channels, which the softmax's derivative subtracts.
    mean = splat(0.0)
    for block in range(blocks_of(args[AT.channels])):
        real = load_block(args, voxels, block, tile)
        for i in range(real):
            c = block * LANES + i
            t = targets_of(args, voxels, c, w)
            mean = mean + exp(load(tile + VECTOR_BYTES * i) - logs) * _slope(args, c, t)
    for block in range(blocks_of(args[AT.channels])):
        real = load_block(args, voxels, block, tile)
        for i in range(real):
            c = block * LANES + i
            t = targets_of(args, voxels, c, w)
            p = exp(load(tile + VECTOR_BYTES * i) - logs)
            slope = p * (_slope(args, c, t) - mean) + _entropy(args) * (p * mass - t)
            store(tile + VECTOR_BYTES * i, w * slope)
        store_block(args, tile, voxels, block, real)


@kernel(AT)
def overlap_softmax_gradient(args: Any, worker: int) -> None:
    """Write w (p_c (g_c - sum of p g) + entropy normaliser (p_c sum(t) - t_c)), g = a t + b, p = softmax(x)."""
    _each_chunk(args, scratch_tile(), _softmax_gradient)


TOTAL = words(
    "partials count batch channels pooled classes normaliser slopes target "
    "smooth:float entropy:float overlap:float"
)


@inlined
def _sum(args: Any, first: int, last: int, i: int) -> float:
    """Return entry i of the partial sums, parts first..last added in order."""
    # In order of the parts: bits do not depend on who made them.
    found = 0.0
    for part in range(first, last):
        place = part * (2 + SUMS * args[TOTAL.channels]) + i
        found += doubles(args[TOTAL.partials])[place]
    return found


@kernel(TOTAL)
def overlap_total(args: Any, worker: int) -> None:
    """Write loss and error as two float64 at `target`, and the slopes of each channel of each sample.

    `partials`: of `count` parts of each of `batch` samples, in order. An overlap is one sample's, or with `pooled`
    that of all samples together; their mean over samples and channels weighs channels by the float32 `classes`.
    `normaliser`: as in `sum_partials`. The loss is entropy * mean cross-entropy + overlap * (1 - mean overlap).
    """
    at = TOTAL
    parts, channels = args[at.count] * args[at.batch], args[at.channels]
    smooth = float_argument(args[at.smooth])
    every = 0.0
    for c in range(channels):
        every += floats(args[at.classes])[c]
    # Pooled, all samples are one; slopes are still written for each, as the gradient's tasks read them by
    # sample.
    samples = 1 if args[at.pooled] else args[at.batch]
    mean = 0.0
    for c in range(channels):
        share = quotient(floats(args[at.classes])[c], every * samples)
        for sample in range(args[at.batch]):
            first = 0 if args[at.pooled] else sample * args[at.count]
            last = parts if args[at.pooled] else first + args[at.count]
            both = 2.0 * _sum(args, first, last, 2 + SUMS * c) + smooth
            each = _sum(args, first, last, 3 + SUMS * c) + _sum(args, first, last, 4 + SUMS * c)
            found = quotient(both, each + smooth)
            # Counted once where samples are pooled.
            if sample < samples:
                mean += share * found
            factor = float_argument(args[at.overlap]) * quotient(share, each + smooth)
            pair = floats(args[at.slopes] + 8 * (sample * channels + c))
            # d overlap / d p = (2 w t - overlap * w) / (P + T + smooth), with the sign of the loss.
            pair[0] = -2.0 * factor
            pair[1] = factor * found
    scales = floats(args[at.normaliser])
    entropy = float_argument(args[at.entropy]) * scales[0] * _sum(args, 0, parts, 0)
    doubles(args[at.target])[0] = entropy + float_argument(args[at.overlap]) * (1.0 - mean)
    doubles(args[at.target])[1] = scales[1] * _sum(args, 0, parts, 1)
