"""Optimiser kernels (SGD, Adam, AdamW) on flat float32 ranges: apply learning rate, momentum and weight decay.

`hyper` is the address of float64 values in the order of `SGD_HYPER` or `ADAM_HYPER`, in memory since they change;
`nesterov` and `decoupled` (AdamW) are 0 or 1, correction1 = 1 - beta1^t and correction2 = 1 - beta2^t with t = 1 for
the first update. `scale` is the address of one float32 that multiplies the gradient (clipping), or 0. Definitions
are PyTorch's (torch.optim.SGD with dampening 0, Adam, AdamW). State starts as zeros; `eps` must be > 0. Parameters
are updated in place. Ranges may be cut anywhere: the result is bitwise the same. Pad filters (gradient 0, value 0)
stay 0.
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
)

# Positions in `hyper`: kernels read it by number.
SGD_HYPER = ("learning_rate", "weight_decay", "momentum", "nesterov")
ADAM_HYPER = ("learning_rate", "weight_decay", "beta1", "beta2", "eps", "decoupled",
              "correction1", "correction2")  # fmt: skip


@inlined
def _sgd(parameter: Any, gradient: Any, momentum: Any, hyper: Any, scale: float) -> Any:
    # Decay before momentum, as PyTorch's SGD.
    g = gradient * splat(scale) + splat(hyper[1]) * parameter
    momentum = splat(hyper[2]) * momentum + g
    step = g + splat(hyper[2]) * momentum if hyper[3] != 0.0 else momentum
    return parameter - splat(hyper[0]) * step, momentum


SGD = words("parameters gradient momentum hyper scale length")


@kernel(SGD)
def sgd(args: Any, worker: int) -> None:
    """Update by SGD: g = scale * gradient + weight_decay * p; m = momentum * m + g; p -= learning_rate * step.

    step is m, or g + momentum * m with nesterov. `momentum` is the address of the state m, or 0 when the momentum is
    0 (then step = g).
    """
    at = SGD
    hyper = doubles(args[at.hyper])
    scale = floats(args[at.scale])[0] if args[at.scale] else 1.0
    full = args[at.length] - args[at.length] % LANES
    for i in range(0, 4 * full, VECTOR_BYTES):
        state = load(args[at.momentum] + i) if args[at.momentum] else splat(0.0)
        p, m = _sgd(load(args[at.parameters] + i), load(args[at.gradient] + i), state, hyper, scale)
        store(args[at.parameters] + i, p)
        if args[at.momentum]:
            store(args[at.momentum] + i, m)
    if full < args[at.length]:
        tail, i = below(args[at.length] - full), 4 * full
        state = load_masked(args[at.momentum] + i, tail) if args[at.momentum] else splat(0.0)
        p, m = _sgd(
            load_masked(args[at.parameters] + i, tail),
            load_masked(args[at.gradient] + i, tail),
            state,
            hyper,
            scale,
        )
        store_masked(args[at.parameters] + i, tail, p)
        if args[at.momentum]:
            store_masked(args[at.momentum] + i, tail, m)


@inlined
def _adam(p: Any, g: Any, mean: Any, variance: Any, hyper: Any, scale: float) -> Any:
    decoupled = hyper[5] != 0.0
    g = g * splat(scale) + splat(0.0 if decoupled else hyper[1]) * p
    # Decoupled decay shrinks the parameter itself (AdamW); else it is part of the gradient.
    p = p * splat(1.0 - hyper[0] * hyper[1] if decoupled else 1.0)
    mean = mean + splat(1.0 - hyper[2]) * (g - mean)
    variance = splat(hyper[3]) * variance + splat(1.0 - hyper[3]) * (g * g)
    # PyTorch's order of operations: the root's correction first, then eps.
    root = fma(sqrt(variance), splat(quotient(1.0, hyper[7] ** 0.5)), splat(hyper[4]))
    return p - splat(quotient(hyper[0], hyper[6])) * mean / root, mean, variance


ADAM = words("parameters gradient mean variance hyper scale length")


@kernel(ADAM)
def adam(args: Any, worker: int) -> None:
    """Update by Adam (Kingma and Ba 2015), with decoupled = 1 AdamW (Loshchilov and Hutter 2019).

    `mean` and `variance` are the addresses of the two states, `length` floats each.
    """
    at = ADAM
    hyper = doubles(args[at.hyper])
    scale = floats(args[at.scale])[0] if args[at.scale] else 1.0
    full = args[at.length] - args[at.length] % LANES
    for i in range(0, 4 * full, VECTOR_BYTES):
        p, m, v = _adam(load(args[at.parameters] + i), load(args[at.gradient] + i), load(args[at.mean] + i),
                        load(args[at.variance] + i), hyper, scale)  # fmt: skip
        store(args[at.parameters] + i, p)
        store(args[at.mean] + i, m)
        store(args[at.variance] + i, v)
    if full < args[at.length]:
        tail, i = below(args[at.length] - full), 4 * full
        p, m, v = _adam(load_masked(args[at.parameters] + i, tail), load_masked(args[at.gradient] + i, tail),
                        load_masked(args[at.mean] + i, tail), load_masked(args[at.variance] + i, tail),
                        hyper, scale)  # fmt: skip
        store_masked(args[at.parameters] + i, tail, p)
        store_masked(args[at.mean] + i, tail, m)
        store_masked(args[at.variance] + i, tail, v)
