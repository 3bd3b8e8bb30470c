"""Statistics of normalisation (batch, instance, group, layer): moments, coefficients, running means, gradients.

Parts are tasks' shares of one channel block of one sample of the batch. A part leaves LEAF float64: the mean of each
of LANES lanes, the sum of squared deviations from it, and how many values a lane has. Merging goes through parts in
order (Chan, Golub and LeVeque 1983), so bits depend on the parts alone.

Statistics are merged over one sample of the batch, or over all of them as one. Channels lie in groups of `size`
neighbours. Tables, by sample and then by channel in LANES to a block:

    moments         MOMENTS float64 a channel: the group's mean minus the channel's bias, the group's
                    1 / sqrt(variance + epsilon), the channel's own mean, its unbiased variance
    coefficients    3 LANES floats a block: scales, centres, biases, so that the normalised value of x is
                    (x - centre) * scale + bias: subtracted first, a mean costs no digits

Lanes without a channel stay as they are: 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import doubles, float_argument, floats
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import (
    fma,
    load,
    splat,
    store_doubles,
    to_doubles,
    zero_doubles,
)

# Means and squared deviations of LANES lanes, a count, and 7 more that fill the cache line.
LEAF = 2 * LANES + 8
# See the head of this module.
MOMENTS = 4
SUMS = 2 * LANES
"""Float64 that a part leaves in the backward pass: sums of gradients d, and of d * (x - centre)."""
# Scales, centres, biases.
COEFFICIENTS = 3 * LANES

RUN = 32
"""Voxels of a row whose sums are of float32, before they are added in float64."""

LANE_STATISTICS = words("source source_z source_y leaf planes rows length")


@kernel(LANE_STATISTICS)
def lane_statistics(args: Any, worker: int) -> None:
    """Write the statistics of a part, `length` floats (whole voxels) a row, at `leaf`.

    Sums are about the part's first voxel, so that a mean far from 0 costs no digits. Those of a run of voxels are of
    float32, about the run's own first: at most RUN times its squared deviations are lost to rounding, for any
    values.
    """
    at = LANE_STATISTICS
    # About the part's first voxel: the sums then hold deviations, not values.
    pivot = to_doubles(load(args[at.source]))
    sums, squares = zero_doubles(), zero_doubles()
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            source = args[at.source] + 4 * (z * args[at.source_z] + y * args[at.source_y])
            for x in range(0, args[at.length], RUN * LANES):
                count = min(args[at.length] // LANES - x // LANES, RUN)
                more, spread = _run(source + 4 * x, count, pivot)
                sums, squares = sums + more, squares + spread
    store_doubles(args[at.leaf], sums)
    store_doubles(args[at.leaf] + 8 * LANES, squares)
    _finish_leaf(args, args[at.planes] * args[at.rows] * (args[at.length] // LANES))


@inlined
def _run(source: int, count: int, pivot: Any) -> Any:
    """Return the sums, and sums of squares, of `count` voxels minus the pivot."""
    first = load(source)
    few, more = splat(0.0), splat(0.0)
    for i in range(0, count * VECTOR_BYTES, VECTOR_BYTES):
        away = load(source + i) - first
        few, more = few + away, fma(away, away, more)
    # The run's own sums are exact enough in float32, as they are about the run's first voxel; all that joins
    # runs is in float64.
    number, total = to_doubles(splat(float(count))), to_doubles(few)
    mean = total / number
    # From the run's mean to the part's pivot.
    off = (to_doubles(first) - pivot) + mean
    return number * off, (to_doubles(more) - total * mean) + number * off * off


@inlined
def _finish_leaf(args: Any, count: int) -> None:
    """Turn sums about the first voxel into mean and squared deviations."""
    at = LANE_STATISTICS
    leaf, first = doubles(args[at.leaf]), floats(args[at.source])
    leaf[2 * LANES] = count
    for lane in range(LANES):
        mean = leaf[lane] / count
        # Rounding may leave less than 0.
        leaf[LANES + lane] = max(leaf[LANES + lane] - leaf[lane] * mean, 0.0)
        leaf[lane] = first[lane] + mean


TABLE = words(
    "leaves image_step block_step cuts samples merged channels size bias scale moments moments_step "
    "coefficients coefficients_step"
)
"""Beside the tables, whose steps are bytes from sample to sample: parts at `leaves`, `cuts` for each block
of each of `merged` samples of the batch that count as one, and bytes from one to the next and from block to block;
addresses of the channels' biases and scales (0: none)."""


@inlined
def _join(a: Any, leaf: Any, lane: int) -> Any:
    """Return (count, mean, squared deviations) of two sets together."""
    count, mean, squares = a
    more = leaf[2 * LANES]
    together, delta = count + more, leaf[lane] - mean
    share = more / together
    # `count` is 0 for the first leaf, whose deviation from nothing does not count.
    spread = delta * delta * count * share if count else 0.0
    return together, mean + delta * share, squares + leaf[LANES + lane] + spread


@inlined
def of_channel(args: Any, sample: int, channel: int) -> Any:
    """Return (count, mean, squared deviations) of one channel of a sample."""
    at = MERGED_STATISTICS
    found = (0.0, 0.0, 0.0)
    # Over samples, then parts, always in this order.
    for image in range(sample * args[at.merged], (sample + 1) * args[at.merged]):
        here = args[at.leaves] + image * args[at.image_step]
        here += channel // LANES * args[at.block_step]
        for cut in range(args[at.cuts]):
            found = _join(found, doubles(here + 8 * LEAF * cut), channel % LANES)
    return found


@inlined
def value_of(address: int, channel: int, default: float) -> Any:
    return float(floats(address)[channel]) if address else default


@inlined
def _group(args: Any, sample: int, first: int) -> Any:
    """Return mean and inverse deviation of a group; write each channel's own moments."""
    at = MERGED_STATISTICS
    moments = doubles(args[at.moments] + sample * args[at.moments_step])
    count, mean, squares = 0.0, 0.0, 0.0
    for channel in range(first, first + args[at.size]):
        own = of_channel(args, sample, channel)
        # With the channel's bias, since a group's mean is over biased values; squared deviations do not change
        # by it.
        more, there = own[0], own[1] + value_of(args[at.bias], channel, 0.0)
        together, delta = count + more, there - mean
        share = more / together
        squares += own[2] + (delta * delta * count * share if count else 0.0)
        mean += delta * share
        count = together
        moments[MOMENTS * channel + 2] = own[1]
        # Unbiased, as running variances are; 1 voxel has none, and 0 / 1 is 0.
        moments[MOMENTS * channel + 3] = own[2] / max(more - 1.0, 1.0)
    return mean, 1.0 / np.sqrt(squares / count + float_argument(args[at.epsilon]))


@inlined
def place(coefficients: int, channel: int, middle: float, scale: float, bias: float) -> None:
    """Write the coefficients of one channel, normalised about `middle`."""
    table = floats(coefficients + 4 * COEFFICIENTS * (channel // LANES))
    lane = channel % LANES
    # What rounding takes from the centre goes into the bias, which is small: see docs/design/normalisation.md,
    # *Precision*.
    centre = np.float32(middle)
    table[lane] = scale
    table[LANES + lane] = centre
    table[2 * LANES + lane] = bias + (float(centre) - middle) * scale


MERGED_STATISTICS = words(TABLE, "shift epsilon:float")


@kernel(MERGED_STATISTICS)
def merged_statistics(args: Any, worker: int) -> None:
    """Write moments and coefficients of `channels` channels of all samples from their parts' statistics."""
    at = MERGED_STATISTICS
    for sample in range(args[at.samples]):
        moments = doubles(args[at.moments] + sample * args[at.moments_step])
        coefficients = args[at.coefficients] + sample * args[at.coefficients_step]
        for first in range(0, args[at.channels], args[at.size]):
            mean, inverse = _group(args, sample, first)
            for channel in range(first, first + args[at.size]):
                middle = mean - value_of(args[at.bias], channel, 0.0)
                moments[MOMENTS * channel] = middle
                moments[MOMENTS * channel + 1] = inverse
                scale = inverse * value_of(args[at.scale], channel, 1.0)
                shift = value_of(args[at.shift], channel, 0.0)
                place(coefficients, channel, middle, scale, shift)


RUNNING_COEFFICIENTS = words(
    "mean variance bias scale shift epsilon:float coefficients channels",
)


@kernel(RUNNING_COEFFICIENTS)
def running_coefficients(args: Any, worker: int) -> None:
    """Write the coefficients of one sample by running statistics, floats by channel."""
    at = RUNNING_COEFFICIENTS
    for channel in range(args[at.channels]):
        middle = float(floats(args[at.mean])[channel]) - value_of(args[at.bias], channel, 0.0)
        variance = float(floats(args[at.variance])[channel])
        scale = _inverse_deviation(variance, float_argument(args[at.epsilon]))
        scale *= value_of(args[at.scale], channel, 1.0)
        shift = value_of(args[at.shift], channel, 0.0)
        place(args[at.coefficients], channel, middle, scale, shift)


@inlined
def _inverse_deviation(variance: float, epsilon: float) -> Any:
    return 1.0 / np.sqrt(variance + epsilon)


MOVE_RUNNING = words("mean variance bias moments count momentum:float channels")


@kernel(MOVE_RUNNING)
def move_running(args: Any, worker: int) -> None:
    """Move running mean and variance by `momentum` towards the mean of `count` samples' `moments`."""
    at = MOVE_RUNNING
    # Moments of all samples are added up by now, hence the division by their number.
    take, count = float_argument(args[at.momentum]), float(args[at.count])
    mean, variance, moments = (
        floats(args[at.mean]),
        floats(args[at.variance]),
        doubles(args[at.moments]),
    )
    for channel in range(args[at.channels]):
        now = moments[MOMENTS * channel + 2] / count + value_of(args[at.bias], channel, 0.0)
        mean[channel] = (1.0 - take) * mean[channel] + take * now
        now = moments[MOMENTS * channel + 3] / count
        variance[channel] = (1.0 - take) * variance[channel] + take * now


MERGED_GRADIENTS = words(
    TABLE,
    "voxels found scale_gradient shift_gradient bias_gradient",
)


@inlined
def channel_sums(args: Any, sample: int, channel: int) -> Any:
    """Return the sums of d and of d * (x - centre) of one channel of a sample."""
    at = MERGED_GRADIENTS
    first, second = 0.0, 0.0
    for image in range(sample * args[at.merged], (sample + 1) * args[at.merged]):
        here = args[at.leaves] + image * args[at.image_step]
        here += channel // LANES * args[at.block_step]
        for cut in range(args[at.cuts]):
            leaf = doubles(here + 8 * SUMS * cut)
            first += leaf[channel % LANES]
            second += leaf[LANES + channel % LANES]
    return first, second


@inlined
def _means(args: Any, sample: int, first: int) -> Any:
    """Return the means over a group of the gradient g by the normalised value u, and of g * u.

    Adds the sums of d and of d * u of each channel to `found`.
    """
    at = MERGED_GRADIENTS
    moments = doubles(args[at.moments] + sample * args[at.moments_step])
    found = doubles(args[at.found])
    plain, product = 0.0, 0.0
    for channel in range(first, first + args[at.size]):
        total, moment = channel_sums(args, sample, channel)
        middle, inverse = moments[MOMENTS * channel], moments[MOMENTS * channel + 1]
        # Sums are about the rounded centre; the exact mean differs by what rounding took.
        moment = inverse * (moment + (float(np.float32(middle)) - middle) * total)
        scale = value_of(args[at.scale], channel, 1.0)
        plain += scale * total
        product += scale * moment
        found[3 * channel] += total
        found[3 * channel + 1] += moment
        # The part of the bias gradient that does not go through the statistics; `_spread` subtracts the rest.
        found[3 * channel + 2] += inverse * scale * total
    count = float(args[at.size] * args[at.voxels] * args[at.merged])
    return plain / count, product / count


@inlined
def _spread(args: Any, sample: int, channel: int, plain: float, product: float) -> None:
    """Write the coefficients of d, x - centre and 1 in the gradient by x; return what they add up to."""
    at = MERGED_GRADIENTS
    moments = doubles(args[at.moments] + sample * args[at.moments_step])
    table = args[at.coefficients] + sample * args[at.coefficients_step]
    target = floats(table + 4 * COEFFICIENTS * (channel // LANES))
    middle, inverse = moments[MOMENTS * channel], moments[MOMENTS * channel + 1]
    lane, off = channel % LANES, float(np.float32(middle)) - middle
    target[lane] = inverse * value_of(args[at.scale], channel, 1.0)
    # d u / d x through mean and deviation, written as coefficients of (x - centre).
    target[LANES + lane] = -inverse * inverse * product
    target[2 * LANES + lane] = -inverse * (plain + inverse * product * off)
    # The channel's own mean away from the group's: 0 where a group is one channel.
    away = inverse * (moments[MOMENTS * channel + 2] - middle)
    count = float(args[at.voxels] * args[at.merged])
    doubles(args[at.found])[3 * channel + 2] -= inverse * count * (plain + product * away)


@kernel(MERGED_GRADIENTS)
def merged_gradients(args: Any, worker: int) -> None:
    """Write gradients of scale, shift and bias from parts' sums, and the coefficients of the gradient by x.

    That is d * c0 + (x - centre) * c1 + c2 for the `coefficients` c of a block, LANES floats each. A lane has
    `voxels` in a sample. `found`: room for 3 float64 a channel; gradients: addresses or 0.
    """
    at = MERGED_GRADIENTS
    found = doubles(args[at.found])
    for i in range(3 * args[at.channels]):
        found[i] = 0.0
    for sample in range(args[at.samples]):
        for first in range(0, args[at.channels], args[at.size]):
            plain, product = _means(args, sample, first)
            for channel in range(first, first + args[at.size]):
                _spread(args, sample, channel, plain, product)
    for channel in range(args[at.channels]):
        if args[at.shift_gradient]:
            floats(args[at.shift_gradient])[channel] = found[3 * channel]
        if args[at.scale_gradient]:
            floats(args[at.scale_gradient])[channel] = found[3 * channel + 1]
        if args[at.bias_gradient]:
            floats(args[at.bias_gradient])[channel] = found[3 * channel + 2]
