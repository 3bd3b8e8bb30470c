"""Coefficients of global response normalisation, forward and backward; tables and words of `normalization_statistics`.

y = v + scale * v * N + shift, v = x + bias; N is G / (mean of G over channels + epsilon), G the root of the sum of
squares over all voxels of a channel. So values are affine in x, with coefficients of each sample, and so are gradients
in x and in the gradient by y. Of moments, G and the inverse of what it is divided by are kept, and the mean of v.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from znnpy_kernels.layers.normalization_statistics import (
    COEFFICIENTS,
    MERGED_GRADIENTS,
    MERGED_STATISTICS,
    MOMENTS,
    channel_sums,
    of_channel,
    place,
    value_of,
)
from znnpy_kernels.machine.abi import kernel
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import doubles, float_argument, floats
from znnpy_kernels.simd.lanes import LANES


@kernel(MERGED_STATISTICS)
def response_statistics(args: Any, worker: int) -> None:
    """Write moments and coefficients of all channels of all samples from their parts' statistics."""
    at = MERGED_STATISTICS
    for sample in range(args[at.samples]):
        moments = doubles(args[at.moments] + sample * args[at.moments_step])
        coefficients = args[at.coefficients] + sample * args[at.coefficients_step]
        total = 0.0
        for channel in range(args[at.channels]):
            count, mean, squares = of_channel(args, sample, channel)
            middle = mean + value_of(args[at.bias], channel, 0.0)
            own = np.sqrt(squares + count * middle * middle)
            moments[MOMENTS * channel] = own
            moments[MOMENTS * channel + 2] = middle
            total += own
        inverse = 1.0 / (total / args[at.channels] + float_argument(args[at.epsilon]))
        for channel in range(args[at.channels]):
            moments[MOMENTS * channel + 1] = inverse
            response = moments[MOMENTS * channel] * inverse
            scale = 1.0 + value_of(args[at.scale], channel, 0.0) * response
            shift = value_of(args[at.shift], channel, 0.0)
            place(coefficients, channel, -value_of(args[at.bias], channel, 0.0), scale, shift)


@inlined
def _losses(args: Any, sample: int, moments: Any) -> float:
    """Return the mean over channels of G times the gradient by N, as it goes through the mean of G."""
    at = MERGED_GRADIENTS
    found = 0.0
    for channel in range(args[at.channels]):
        scale = value_of(args[at.scale], channel, 0.0)
        found += scale * channel_sums(args, sample, channel)[1] * moments[MOMENTS * channel]
    mean: float = found / args[at.channels]
    return mean


@kernel(MERGED_GRADIENTS)
def response_gradients(args: Any, worker: int) -> None:
    """Write gradients of scale, shift and bias, and the coefficients of the gradient by x: see `merged_gradients`."""
    at = MERGED_GRADIENTS
    found = doubles(args[at.found])
    for i in range(3 * args[at.channels]):
        found[i] = 0.0
    for sample in range(args[at.samples]):
        moments = doubles(args[at.moments] + sample * args[at.moments_step])
        lost = _losses(args, sample, moments)
        for channel in range(args[at.channels]):
            plain, product = channel_sums(args, sample, channel)
            own, inverse = moments[MOMENTS * channel], moments[MOMENTS * channel + 1]
            scale = value_of(args[at.scale], channel, 0.0)
            # Of a channel that is 0 everywhere the root has no gradient.
            along = (
                (scale * product * inverse - lost * inverse * inverse) / own if own > 0.0 else 0.0
            )
            straight = 1.0 + scale * own * inverse
            table = args[at.coefficients] + sample * args[at.coefficients_step]
            target = floats(table + 4 * COEFFICIENTS * (channel // LANES))
            target[channel % LANES] = straight
            target[LANES + channel % LANES] = along
            target[2 * LANES + channel % LANES] = 0.0
            middle = moments[MOMENTS * channel + 2]
            found[3 * channel] += plain
            found[3 * channel + 1] += product * own * inverse
            found[3 * channel + 2] += straight * plain + along * args[at.voxels] * middle
    for channel in range(args[at.channels]):
        if args[at.shift_gradient]:
            floats(args[at.shift_gradient])[channel] = found[3 * channel]
        if args[at.scale_gradient]:
            floats(args[at.scale_gradient])[channel] = found[3 * channel + 1]
        if args[at.bias_gradient]:
            floats(args[at.bias_gradient])[channel] = found[3 * channel + 2]
