"""Optimizers on flat float32 ranges; hyperparameters are read from memory, since they change.

`hyper` is the address of float64 values in the order of `HYPERPARAMETERS`; flags are 0 or 1:
learning_rate, weight_decay, momentum, nesterov, beta1, beta2, eps, decoupled (AdamW), correction1
= 1 - beta1^t, correction2 = 1 - beta2^t with t = 1 for the first update. `scale` is the address
of one float32 that multiplies the gradient (clipping), or 0. Definitions are PyTorch's
(torch.optim.SGD with dampening 0, Adam, AdamW). State starts as zeros; `eps` must be > 0.
Parameters are updated in place. Ranges may be cut anywhere: the result is bitwise the same. Pad
filters (gradient 0, value 0) stay 0.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.abi import kernel
from znnpy_kernels.inlining import inlined
from znnpy_kernels.lanes import LANES
from znnpy_kernels.memory import doubles, floats
from znnpy_kernels.vectors import below, fma, load, load_masked, splat, sqrt, store, store_masked

HYPERPARAMETERS = ("learning_rate", "weight_decay", "momentum", "nesterov", "beta1", "beta2",
                   "eps", "decoupled", "correction1", "correction2")  # fmt: skip


@inlined
def _sgd(parameter: Any, gradient: Any, momentum: Any, hyper: Any, scale: float) -> Any:
    g = gradient * splat(scale) + splat(hyper[1]) * parameter
    momentum = splat(hyper[2]) * momentum + g
    step = g + splat(hyper[2]) * momentum if hyper[3] != 0.0 else momentum
    return parameter - splat(hyper[0]) * step, momentum


@kernel("parameters", "gradient", "momentum", "hyper", "scale", "length")
def sgd(args: Any, worker: int) -> None:
    """g = scale * gradient + weight_decay * p; m = momentum * m + g; p -= learning_rate * step.

    step is m, or g + momentum * m with nesterov. `momentum` is the address of the state m, or 0
    when the momentum is 0 (then step = g).
    """
    hyper = doubles(args[3])
    scale = floats(args[4])[0] if args[4] else 1.0
    full = args[5] - args[5] % LANES
    for i in range(0, 4 * full, 4 * LANES):
        state = load(args[2] + i) if args[2] else splat(0.0)
        p, m = _sgd(load(args[0] + i), load(args[1] + i), state, hyper, scale)
        store(args[0] + i, p)
        if args[2]:
            store(args[2] + i, m)
    if full < args[5]:
        tail, i = below(args[5] - full), 4 * full
        state = load_masked(args[2] + i, tail) if args[2] else splat(0.0)
        p, m = _sgd(
            load_masked(args[0] + i, tail), load_masked(args[1] + i, tail), state, hyper, scale
        )
        store_masked(args[0] + i, tail, p)
        if args[2]:
            store_masked(args[2] + i, tail, m)


@inlined
def quotient(a: float, b: float) -> float:
    """a / b without the check for zero, which would leave the kernel by an exception."""
    return a / b


@inlined
def _adam(p: Any, g: Any, mean: Any, variance: Any, hyper: Any, scale: float) -> Any:
    decoupled = hyper[7] != 0.0
    g = g * splat(scale) + splat(0.0 if decoupled else hyper[1]) * p
    p = p * splat(1.0 - hyper[0] * hyper[1] if decoupled else 1.0)
    mean = mean + splat(1.0 - hyper[4]) * (g - mean)
    variance = splat(hyper[5]) * variance + splat(1.0 - hyper[5]) * (g * g)
    root = fma(sqrt(variance), splat(quotient(1.0, hyper[9] ** 0.5)), splat(hyper[6]))
    return p - splat(quotient(hyper[0], hyper[8])) * mean / root, mean, variance


@kernel("parameters", "gradient", "mean", "variance", "hyper", "scale", "length")
def adam(args: Any, worker: int) -> None:
    """Adam (Kingma and Ba 2015), with decoupled = 1 AdamW (Loshchilov and Hutter 2019).

    `mean` and `variance` are the addresses of the two states, `length` floats each.
    """
    hyper = doubles(args[4])
    scale = floats(args[5])[0] if args[5] else 1.0
    full = args[6] - args[6] % LANES
    for i in range(0, 4 * full, 4 * LANES):
        p, m, v = _adam(load(args[0] + i), load(args[1] + i), load(args[2] + i),
                        load(args[3] + i), hyper, scale)  # fmt: skip
        store(args[0] + i, p)
        store(args[2] + i, m)
        store(args[3] + i, v)
    if full < args[6]:
        tail, i = below(args[6] - full), 4 * full
        p, m, v = _adam(load_masked(args[0] + i, tail), load_masked(args[1] + i, tail),
                        load_masked(args[2] + i, tail), load_masked(args[3] + i, tail),
                        hyper, scale)  # fmt: skip
        store_masked(args[0] + i, tail, p)
        store_masked(args[2] + i, tail, m)
        store_masked(args[3] + i, tail, v)
