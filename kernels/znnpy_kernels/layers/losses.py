"""Loss kernels that are means over voxels (square, cross-entropy, focal, softmax, MALIS): gradient and sums.

The words are those of `loss_rows`. `normaliser` is the address of one float32, 1 / (sum of weights). `partial` gets
two float64: the sum of weight * loss and the sum of weight * wrong over the part, not multiplied by the normaliser.
`bias_gradient` (elementwise losses; 0: not wanted) gets the sum of the gradient over the part for each channel,
LANES floats a block, pad 0, blocks `bias_block` floats apart. With a `relu_slope` the gradient of that function is
applied to what is written and added up.

A loss is the weighted mean over voxels and output channels, so the sum of weights runs over both; a loss of classes
is the weighted mean over voxels, and the weight is read from the first channel only. `classes` is the address of a
float32 weight for each class, `smoothing` the share of targets that is spread evenly over the classes; `gamma`
sharpens focal losses, `ones` and `zeros` weigh their targets.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.layers.loss_rows import (
    AT,
    exp_sum,
    load_block,
    row_at,
    scanned,
    store_block,
    targets_of,
    voxels_at,
    weights_of,
)
from znnpy_kernels.layers.softmax import blocks_of, zero_pad
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import doubles, float_argument, floats
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.transpose import AHEAD, scratch_tile, transpose_tile
from znnpy_kernels.simd.vector_math import exp, larger, log, log1p, logistic
from znnpy_kernels.simd.vectors import (
    absolute,
    load,
    prefetch,
    select,
    splat,
    store,
    to_doubles,
    total,
    zero_doubles,
)


@inlined
def _square(args: Any, x: Any, t: Any) -> Any:
    difference = x - t
    wrong = (x > splat(0.5)) ^ (t > splat(0.5))
    return difference * difference, difference + difference, wrong


@inlined
def _binomial(args: Any, x: Any, t: Any) -> Any:
    # e^-|x|: nothing overflows.
    e = exp(-absolute(x))
    loss = larger(x, splat(0.0)) - x * t + log1p(e)
    return loss, logistic(x) - t, (x > splat(0.0)) ^ (t > splat(0.5))


@inlined
def _focal(args: Any, x: Any, t: Any) -> Any:
    e, positive = exp(-absolute(x)), x > splat(0.0)
    tail = log1p(e)
    # Both logarithms from the same tail, so that neither is of a number near 0.
    yes = select(positive, splat(0.0), -x) + tail  # -log p
    no = select(positive, x, splat(0.0)) + tail  # -log (1 - p)
    p, gamma = logistic(x), splat(float_argument(args[AT.gamma]))
    # (1 - p)^gamma = e^(-gamma * -log(1 - p)): a power by what is known already.
    ones = splat(float_argument(args[AT.ones])) * t * exp(-(gamma * no))
    zeros = splat(float_argument(args[AT.zeros])) * (splat(1.0) - t) * exp(-(gamma * yes))
    q = logistic(-x)
    slope = zeros * (gamma * q * no + p) - ones * (gamma * p * yes + q)
    return ones * yes + zeros * no, slope, (x > splat(0.0)) ^ (t > splat(0.5))


@inlined
def _malis(args: Any, x: Any, t: Any) -> Any:
    p, joined = logistic(x), t > splat(0.5)
    # Of the share itself, whose logarithm MALIS does not take.
    short = p - select(joined, splat(1.0), splat(0.0))
    return short * short, splat(2.0) * short * p * logistic(-x), (x > splat(0.0)) ^ joined


@inlined
def _before_relu(args: Any, x: Any, gradient: Any) -> Any:
    """Return the gradient by the sum that x is the relu, or leaky relu, of."""
    below = float_argument(args[AT.relu_slope])
    if below == 1.0:
        return gradient
    # 0 * Inf would be NaN; a NaN in x is not positive, nor is it hidden.
    low = gradient * splat(below) if below != 0.0 else splat(0.0)
    return select(x <= splat(0.0), low, gradient)


@inlined
def _elementwise_chunk(
    args: Any, loss: Any, voxels: Any, tile: int, biases: int, block: int, sums: Any
) -> Any:
    """Compute one tile: gradients replace the logits and are added to row c of `biases`; return the two sums."""
    normaliser = splat(floats(args[AT.normaliser])[0])
    losses, wrongs = sums
    real = load_block(args, voxels, block, tile)
    for c in range(real):
        w = weights_of(args, voxels, block * LANES + c)
        truth = targets_of(args, voxels, block * LANES + c, w)
        x = load(tile + VECTOR_BYTES * c)
        value, slope, wrong = loss(args, x, truth)
        # In float64 over the part; lanes outside may hold anything, and are left out.
        losses = losses + to_doubles(select(voxels.inside, w * value, splat(0.0)))
        wrongs = wrongs + to_doubles(select(wrong, w, splat(0.0)))
        gradient = _before_relu(args, x, slope * (w * normaliser))
        store(tile + VECTOR_BYTES * c, gradient)
        if args[AT.bias_gradient]:
            # Lanes outside have weight 0, but 0 * Inf is NaN: selected.
            held = load(biases + VECTOR_BYTES * c)
            store(biases + VECTOR_BYTES * c, held + select(voxels.inside, gradient, splat(0.0)))
    if args[AT.gradient]:
        store_block(args, tile, voxels, block, real)
    return losses, wrongs


@inlined
def _whole_chunk(
    args: Any, loss: Any, voxels: Any, tile: int, biases: int, block: int, sums: Any
) -> Any:
    """Compute a tile of LANES voxels whose weights are 1, to the same bits without masks."""
    normaliser = splat(floats(args[AT.normaliser])[0])
    losses, wrongs = sums
    real = load_block(args, voxels, block, tile)
    target, step = (
        voxels.target + 4 * block * LANES * args[AT.target_image],
        4 * args[AT.target_image],
    )
    # At most one a channel, so exact.
    counted = splat(0.0)
    for c in range(real):
        here = target + c * step
        prefetch(here + AHEAD)
        x = load(tile + VECTOR_BYTES * c)
        value, slope, wrong = loss(args, x, load(here))
        losses = losses + to_doubles(value)
        counted = counted + select(wrong, splat(1.0), splat(0.0))
        gradient = _before_relu(args, x, slope * normaliser)
        store(tile + VECTOR_BYTES * c, gradient)
        if args[AT.bias_gradient]:
            store(biases + VECTOR_BYTES * c, load(biases + VECTOR_BYTES * c) + gradient)
    if args[AT.gradient]:
        store_block(args, tile, voxels, block, real)
    return losses, wrongs + to_doubles(counted)


@inlined
def elementwise(args: Any, tile: int, biases: int, loss: Any) -> None:
    """Compute a loss that is a mean over voxels of each channel: `loss(args, values, targets)` of vectors.

    `loss` returns the loss, its slope, and which are wrong. `tile`, `biases`: a `scratch_tile` each.
    """
    sums = zero_doubles(), zero_doubles()
    for block in range(blocks_of(args[AT.channels])):
        # All of them: from row 0 on.
        zero_pad(biases, 0)
        for z in range(args[AT.planes]):
            for y in range(args[AT.rows]):
                row = row_at(args, z, y)
                for x in range(0, args[AT.width], LANES):
                    voxels = voxels_at(args, row, x)
                    if voxels.width == LANES and not voxels.weight:
                        sums = _whole_chunk(args, loss, voxels, tile, biases, block, sums)
                    else:
                        sums = _elementwise_chunk(args, loss, voxels, tile, biases, block, sums)
        if args[AT.bias_gradient]:
            # Rows are channels and lanes positions: transposed, they are added to one vector of channels.
            transpose_tile(biases, VECTOR_BYTES, biases, VECTOR_BYTES)
            total_ = splat(0.0)
            for position in range(LANES):
                total_ = total_ + load(biases + VECTOR_BYTES * position)
            store(args[AT.bias_gradient] + 4 * block * args[AT.bias_block], total_)
    doubles(args[AT.partial])[0] = total(sums[0])
    doubles(args[AT.partial])[1] = total(sums[1])


@kernel(AT)
def square_loss(args: Any, worker: int) -> None:
    """Compute (y - t)^2, gradient 2 (y - t) w normaliser; wrong where (y > 0.5) differs from (t > 0.5)."""
    elementwise(args, scratch_tile(), scratch_tile(), _square)


@kernel(AT)
def binomial_cross_entropy_loss(args: Any, worker: int) -> None:
    """Compute -t log p - (1 - t) log(1 - p), p = logistic(x); wrong where (x > 0) differs from (t > 0.5).

    As max(x, 0) - x t + log1p(e^-|x|): stable for any x. Gradient (p - t) w normaliser.
    """
    elementwise(args, scratch_tile(), scratch_tile(), _binomial)


@kernel(AT)
def focal_loss(args: Any, worker: int) -> None:
    """Compute -ones t (1 - p)^gamma log p - zeros (1 - t) p^gamma log(1 - p), p = logistic(x)."""
    elementwise(args, scratch_tile(), scratch_tile(), _focal)


@kernel(AT)
def malis_loss(args: Any, worker: int) -> None:
    """Compute (p - t)^2, p = logistic(x), t 0 or 1; the weights are the shares of pairs of `malis`."""
    elementwise(args, scratch_tile(), scratch_tile(), _malis)


@inlined
def _smoothed(args: Any, t: Any, c: int) -> Any:
    """Return the share of class c in the cross-entropy: the target spread over all classes, and weighed."""
    smoothing = float_argument(args[AT.smoothing])
    # Spread evenly over all classes, then weighed: as PyTorch's label smoothing with weights.
    spread = t * splat(1.0 - smoothing) + splat(smoothing / args[AT.channels])
    return spread * splat(floats(args[AT.classes])[c])


@inlined
def _softmax_gradient(
    args: Any, voxels: Any, largest: Any, scale: Any, weight: Any, tile: int
) -> None:
    """Write exp(x - largest) * scale - q * weight, q what targets count."""
    for block in range(blocks_of(args[AT.channels])):
        real = load_block(args, voxels, block, tile)
        for c in range(real):
            t = targets_of(args, voxels, block * LANES + c, weight)
            p = exp(load(tile + VECTOR_BYTES * c) - largest) * scale
            store(tile + VECTOR_BYTES * c, p - _smoothed(args, t, block * LANES + c) * weight)
        store_block(args, tile, voxels, block, real)


@inlined
def _softmax_chunk(args: Any, voxels: Any, tile: int, sums: Any) -> Any:
    w = weights_of(args, voxels, 0)
    largest, mass, product, wrong = scanned(args, voxels, w, tile, _smoothed)
    exponentials = exp_sum(args, voxels, largest, tile)
    value = w * ((log(exponentials) + largest) * mass - product)
    losses = sums[0] + to_doubles(select(voxels.inside, value, splat(0.0)))
    wrongs = sums[1] + to_doubles(select(wrong, w, splat(0.0)))
    if args[AT.gradient]:
        w = w * splat(floats(args[AT.normaliser])[0])
        # sum(q) / sum(exp): one factor for all classes.
        _softmax_gradient(args, voxels, largest, w * mass / exponentials, w, tile)
    return losses, wrongs


@inlined
def _classes(args: Any, tile: int, chunk: Any) -> None:
    """Compute all chunks of a loss of classes."""
    sums = zero_doubles(), zero_doubles()
    for z in range(args[AT.planes]):
        for y in range(args[AT.rows]):
            row = row_at(args, z, y)
            for x in range(0, args[AT.width], LANES):
                sums = chunk(args, voxels_at(args, row, x), tile, sums)
    doubles(args[AT.partial])[0] = total(sums[0])
    doubles(args[AT.partial])[1] = total(sums[1])


@kernel(AT)
def softmax_loss(args: Any, worker: int) -> None:
    """Compute -sum over channels of q log softmax(x), q the targets, smoothed and times the weights of classes.

    Targets are probabilities or one-hot over channels. Gradient (softmax * sum(q) - q) w normaliser. Wrong where the
    argmaxes differ (the first wins).
    """
    _classes(args, scratch_tile(), _softmax_chunk)


@inlined
def _focal_terms(args: Any, x: Any, q: Any) -> Any:
    """Return for a class, from the logarithm x of its share p: p, q (1 - p)^gamma * -x, and p times its slope by p."""
    p, gamma = exp(x), splat(float_argument(args[AT.gamma]))
    # 1 - p at least so much: log(0) would be -Inf, and 0 * Inf is NaN for gamma 0.
    rest = larger(splat(1.0) - p, splat(1e-30))
    faded = q * exp(gamma * log(rest))
    # p times the slope by p, so that no division by a small p is needed.
    return p, -(faded * x), faded * (gamma * p * x / rest - splat(1.0))


@inlined
def _focal_sums(args: Any, voxels: Any, logs: Any, weight: Any, tile: int) -> Any:
    """Return the loss, and the sum of slopes over classes; `logs`: logarithm of the sum of exponentials."""
    loss, slopes = splat(0.0), splat(0.0)
    for block in range(blocks_of(args[AT.channels])):
        real = load_block(args, voxels, block, tile)
        for c in range(real):
            t = targets_of(args, voxels, block * LANES + c, weight)
            q = _smoothed(args, t, block * LANES + c)
            _, value, slope = _focal_terms(args, load(tile + VECTOR_BYTES * c) - logs, q)
            loss, slopes = loss + value, slopes + slope
    return loss, slopes


@inlined
def _focal_gradient(args: Any, voxels: Any, logs: Any, slopes: Any, weight: Any, tile: int) -> None:
    """Write (slope of its class - p * sum of slopes) * weight."""
    for block in range(blocks_of(args[AT.channels])):
        real = load_block(args, voxels, block, tile)
        for c in range(real):
            t = targets_of(args, voxels, block * LANES + c, weight)
            q = _smoothed(args, t, block * LANES + c)
            p, _, slope = _focal_terms(args, load(tile + VECTOR_BYTES * c) - logs, q)
            store(tile + VECTOR_BYTES * c, (slope - p * slopes) * weight)
        store_block(args, tile, voxels, block, real)


@inlined
def _focal_chunk(args: Any, voxels: Any, tile: int, sums: Any) -> Any:
    w = weights_of(args, voxels, 0)
    largest, _, _, wrong = scanned(args, voxels, w, tile, _smoothed)
    logs = largest + log(exp_sum(args, voxels, largest, tile))
    loss, slopes = _focal_sums(args, voxels, logs, w, tile)
    losses = sums[0] + to_doubles(select(voxels.inside, w * loss, splat(0.0)))
    wrongs = sums[1] + to_doubles(select(wrong, w, splat(0.0)))
    if args[AT.gradient]:
        w = w * splat(floats(args[AT.normaliser])[0])
        _focal_gradient(args, voxels, logs, slopes, w, tile)
    return losses, wrongs


@kernel(AT)
def focal_softmax_loss(args: Any, worker: int) -> None:
    """Compute -sum over channels of q (1 - p)^gamma log p, p = softmax(x), q as in `softmax_loss`."""
    _classes(args, scratch_tile(), _focal_chunk)


SUM_PARTIALS = words("partials count normaliser target")


@kernel(SUM_PARTIALS)
def sum_partials(args: Any, worker: int) -> None:
    """Add `count` pairs of float64 in order into two float64 at `target`, times the two normalisers.

    `normaliser`: address of two float32, of the loss and of the share of wrong voxels, or 0 for plain sums.
    """
    at = SUM_PARTIALS
    losses, wrongs = 0.0, 0.0
    for i in range(args[at.count]):
        losses += doubles(args[at.partials])[2 * i]
        wrongs += doubles(args[at.partials])[2 * i + 1]
    scale, share = 1.0, 1.0
    if args[at.normaliser]:
        scale, share = floats(args[at.normaliser])[0], floats(args[at.normaliser])[1]
    doubles(args[at.target])[0] = losses * scale
    doubles(args[at.target])[1] = wrongs * share
