"""Optimiser kernels whose steps are scaled layer by layer (LAMB, LARS): norms of a range, then its update.

`hyper` and `scale` as in `optimizers`. The norms of a layer are sums over all its ranges, which `lamb_norms` and
`lars_norms` leave as two float64 each (squares of parameters, and of steps or gradients), and `lamb` and `lars` add up
in their order: the same bits whichever worker computes what, as long as ranges are cut alike. Pad filters (gradient 0,
value 0) stay 0 and add nothing.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.arithmetic import quotient
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import doubles, floats
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import (
    below,
    fma,
    load,
    load_masked,
    splat,
    sqrt,
    store,
    store_masked,
    to_doubles,
    total,
    zero_doubles,
)


@inlined
def _moments(g: Any, mean: Any, variance: Any, hyper: Any, scale: float) -> Any:
    g = g * splat(scale)
    mean = mean + splat(1.0 - hyper[2]) * (g - mean)
    variance = splat(hyper[3]) * variance + splat(1.0 - hyper[3]) * (g * g)
    return mean, variance


@inlined
def _step(p: Any, mean: Any, variance: Any, hyper: Any) -> Any:
    # As in `adam`: the root's correction first, then eps.
    root = fma(sqrt(variance), splat(quotient(1.0, hyper[7] ** 0.5)), splat(hyper[4]))
    return splat(quotient(1.0, hyper[6])) * mean / root + splat(hyper[1]) * p


@inlined
def _square(value: Any) -> Any:
    wide = to_doubles(value)
    return wide * wide


LAMB_NORMS = words("parameters gradient mean variance hyper scale length partial")


@kernel(LAMB_NORMS)
def lamb_norms(args: Any, worker: int) -> None:
    """Move both moments of a range by its gradient; write the sums of squares of parameters and of steps.

    `partial` is the address of the two, float64.
    """
    at = LAMB_NORMS
    hyper = doubles(args[at.hyper])
    scale = floats(args[at.scale])[0] if args[at.scale] else 1.0
    values, steps = zero_doubles(), zero_doubles()
    full = args[at.length] - args[at.length] % LANES
    for i in range(0, 4 * full, VECTOR_BYTES):
        p = load(args[at.parameters] + i)
        m, v = _moments(load(args[at.gradient] + i), load(args[at.mean] + i), load(args[at.variance] + i),
                        hyper, scale)  # fmt: skip
        store(args[at.mean] + i, m)
        store(args[at.variance] + i, v)
        values = values + _square(p)
        steps = steps + _square(_step(p, m, v, hyper))
    if full < args[at.length]:
        tail, i = below(args[at.length] - full), 4 * full
        p = load_masked(args[at.parameters] + i, tail)
        m, v = _moments(load_masked(args[at.gradient] + i, tail), load_masked(args[at.mean] + i, tail),
                        load_masked(args[at.variance] + i, tail), hyper, scale)  # fmt: skip
        store_masked(args[at.mean] + i, tail, m)
        store_masked(args[at.variance] + i, tail, v)
        values = values + _square(p)
        steps = steps + _square(_step(p, m, v, hyper))
    doubles(args[at.partial])[0] = total(values)
    doubles(args[at.partial])[1] = total(steps)


LAMB = words("parameters gradient mean variance hyper scale length partials count")


@kernel(LAMB)
def lamb(args: Any, worker: int) -> None:
    """Update a range by LAMB (You et al. 2020), once `lamb_norms` has moved the moments of the whole layer.

    `partials`: `count` pairs of sums, those of all ranges of the layer. The step is scaled by the norm of the
    parameters over its own, where neither is 0; with `count` 0 (no filters) it is not. `gradient` and `scale`
    are not read: the moments hold them.
    """
    at = LAMB
    hyper = doubles(args[at.hyper])
    values, steps = 0.0, 0.0
    for i in range(args[at.count]):
        values += doubles(args[at.partials])[2 * i]
        steps += doubles(args[at.partials])[2 * i + 1]
    ratio = quotient(values, steps) ** 0.5 if values > 0.0 and steps > 0.0 else 1.0
    rate = hyper[0] * ratio
    full = args[at.length] - args[at.length] % LANES
    for i in range(0, 4 * full, VECTOR_BYTES):
        p = load(args[at.parameters] + i)
        step = _step(p, load(args[at.mean] + i), load(args[at.variance] + i), hyper)
        store(args[at.parameters] + i, p - splat(rate) * step)
    if full < args[at.length]:
        tail, i = below(args[at.length] - full), 4 * full
        p = load_masked(args[at.parameters] + i, tail)
        step = _step(p, load_masked(args[at.mean] + i, tail), load_masked(args[at.variance] + i, tail),
                     hyper)  # fmt: skip
        store_masked(args[at.parameters] + i, tail, p - splat(rate) * step)


# Positions in the `hyper` of `lars`.
LARS_HYPER = ("learning_rate", "weight_decay", "momentum", "trust")
LARS_NORMS = words("parameters gradient momentum hyper scale length partial")


@kernel(LARS_NORMS)
def lars_norms(args: Any, worker: int) -> None:
    """Write the sums of squares of a range's parameters and of its gradient, times `scale`, to `partial`, float64."""
    at = LARS_NORMS
    scale = floats(args[at.scale])[0] if args[at.scale] else 1.0
    values, gradients = zero_doubles(), zero_doubles()
    full = args[at.length] - args[at.length] % LANES
    for i in range(0, 4 * full, VECTOR_BYTES):
        values = values + _square(load(args[at.parameters] + i))
        gradients = gradients + _square(load(args[at.gradient] + i) * splat(scale))
    if full < args[at.length]:
        tail, i = below(args[at.length] - full), 4 * full
        values = values + _square(load_masked(args[at.parameters] + i, tail))
        gradients = gradients + _square(load_masked(args[at.gradient] + i, tail) * splat(scale))
    doubles(args[at.partial])[0] = total(values)
    doubles(args[at.partial])[1] = total(gradients)


@inlined
def _lars(p: Any, g: Any, momentum: Any, hyper: Any, scale: float, ratio: float) -> Any:
    g = splat(ratio) * (g * splat(scale) + splat(hyper[1]) * p)
    momentum = splat(hyper[2]) * momentum + g
    return p - splat(hyper[0]) * momentum, momentum


LARS = words("parameters gradient momentum hyper scale length partials count")


@kernel(LARS)
def lars(args: Any, worker: int) -> None:
    """Update a range by LARS (You et al. 2017), SGD whose gradient is scaled layer by layer.

    `partials`: `count` pairs of sums, those of all ranges of the layer. The gradient, with the decay in it, is times
    trust |p| / (|gradient| + weight_decay |p|), where neither norm is 0; with `count` 0 (no filters) it is not.
    `momentum` is the address of the state, or 0 when the momentum is 0.
    """
    at = LARS
    hyper = doubles(args[at.hyper])
    scale = floats(args[at.scale])[0] if args[at.scale] else 1.0
    values, gradients = 0.0, 0.0
    for i in range(args[at.count]):
        values += doubles(args[at.partials])[2 * i]
        gradients += doubles(args[at.partials])[2 * i + 1]
    size, length = values**0.5, gradients**0.5
    ratio = 1.0
    if values > 0.0 and gradients > 0.0:
        ratio = quotient(hyper[3] * size, length + hyper[1] * size)
    full = args[at.length] - args[at.length] % LANES
    for i in range(0, 4 * full, VECTOR_BYTES):
        state = load(args[at.momentum] + i) if args[at.momentum] else splat(0.0)
        p, m = _lars(load(args[at.parameters] + i), load(args[at.gradient] + i), state, hyper,
                     scale, ratio)  # fmt: skip
        store(args[at.parameters] + i, p)
        if args[at.momentum]:
            store(args[at.momentum] + i, m)
    if full < args[at.length]:
        tail, i = below(args[at.length] - full), 4 * full
        state = load_masked(args[at.momentum] + i, tail) if args[at.momentum] else splat(0.0)
        p, m = _lars(load_masked(args[at.parameters] + i, tail), load_masked(args[at.gradient] + i, tail),
                     state, hyper, scale, ratio)  # fmt: skip
        store_masked(args[at.parameters] + i, tail, p)
        if args[at.momentum]:
            store_masked(args[at.momentum] + i, tail, m)
