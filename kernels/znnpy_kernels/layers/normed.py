"""Gradients of functions of normalised sums, by function: sums for the statistics' gradients, then all.

A node's values are f(v), v = (x - centre) * scale + bias, with the sum x at `summed` and `coefficients`
as `statistics` leaves them. From v these kernels (`NORMED[name]`) make d = g * f'(v) of the gradient g
again in both passes, which read x and g alone:

    target 0    the part's sums of d and of d * (x - centre) are left at `sums`, 2 LANES float64
    else        target = d * c0 + (x - centre) * c1 + c2, with c the 3 LANES floats at `back`

`*_z`, `*_y` are strides in floats, `length` a row in floats, whole voxels. `target` may be `gradient`.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.layers.statistics import RUN
from znnpy_kernels.layers.transfer import (
    _elu_slope,
    _gelu_back,
    _gelu_tanh_back,
    _hard_swish_back,
    _leaky_relu_back,
    _linear,
    _linear_back,
    _logistic,
    _logistic_back,
    _prelu_back,
    _relu_back,
    _silu_back,
    _soft_sign,
    _soft_sign_back,
    _softplus,
    _softplus_back,
    _tanh,
    _tanh_back,
    shape_of,
)
from znnpy_kernels.machine.abi import Kernel, kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vectors import (
    fma,
    load,
    splat,
    store,
    store_doubles,
    to_doubles,
    zero_doubles,
)

NORMED_WORDS = words(
    "summed summed_z summed_y gradient gradient_z gradient_y target target_z target_y "
    "coefficients back sums planes rows length slope:float amplitude:float gain:float slopes",
)


@inlined
def _summed(args: Any, function: Any, derivative: Any) -> None:
    at = NORMED_WORDS
    shape, table = shape_of(args, NORMED_WORDS), args[at.coefficients]
    scale, centre, bias = (
        load(table),
        load(table + VECTOR_BYTES),
        load(table + 2 * VECTOR_BYTES),
    )
    plain, product = zero_doubles(), zero_doubles()
    run = RUN * VECTOR_BYTES
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            summed = args[at.summed] + 4 * (z * args[at.summed_z] + y * args[at.summed_y])
            gradient = args[at.gradient] + 4 * (z * args[at.gradient_z] + y * args[at.gradient_y])
            for first in range(0, 4 * args[at.length], run):
                few, more = splat(0.0), splat(0.0)
                for i in range(first, min(first + run, 4 * args[at.length]), VECTOR_BYTES):
                    x = load(summed + i) - centre
                    v = function(fma(x, scale, bias), shape)
                    d = derivative(v, load(gradient + i), shape)
                    few, more = few + d, fma(d, x, more)
                plain, product = plain + to_doubles(few), product + to_doubles(more)
    store_doubles(args[at.sums], plain)
    store_doubles(args[at.sums] + 8 * LANES, product)


@inlined
def _spread(args: Any, function: Any, derivative: Any) -> None:
    at = NORMED_WORDS
    shape, table, back = shape_of(args, NORMED_WORDS), args[at.coefficients], args[at.back]
    scale, centre, bias = (
        load(table),
        load(table + VECTOR_BYTES),
        load(table + 2 * VECTOR_BYTES),
    )
    c0, c1, c2 = load(back), load(back + VECTOR_BYTES), load(back + 2 * VECTOR_BYTES)
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            summed = args[at.summed] + 4 * (z * args[at.summed_z] + y * args[at.summed_y])
            gradient = args[at.gradient] + 4 * (z * args[at.gradient_z] + y * args[at.gradient_y])
            target = args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y])
            for i in range(0, 4 * args[at.length], VECTOR_BYTES):
                x = load(summed + i) - centre
                v = function(fma(x, scale, bias), shape)
                d = derivative(v, load(gradient + i), shape)
                store(target + i, fma(d, c0, fma(x, c1, c2)))


@inlined
def _normed(args: Any, function: Any, derivative: Any) -> None:
    """`derivative` takes what `function` makes of v: v itself, or the node's value."""
    if args[NORMED_WORDS.target]:
        _spread(args, function, derivative)
    else:
        _summed(args, function, derivative)


@kernel(NORMED_WORDS)
def normed_linear(args: Any, worker: int) -> None:
    """Of linear."""
    _normed(args, _linear, _linear_back)


@kernel(NORMED_WORDS)
def normed_relu(args: Any, worker: int) -> None:
    """Of relu."""
    _normed(args, _linear, _relu_back)


@kernel(NORMED_WORDS)
def normed_leaky_relu(args: Any, worker: int) -> None:
    """Of leaky_relu."""
    _normed(args, _linear, _leaky_relu_back)


@kernel(NORMED_WORDS)
def normed_prelu(args: Any, worker: int) -> None:
    """Of prelu."""
    _normed(args, _linear, _prelu_back)


@kernel(NORMED_WORDS)
def normed_elu(args: Any, worker: int) -> None:
    """Of elu."""
    _normed(args, _linear, _elu_slope)


@kernel(NORMED_WORDS)
def normed_tanh(args: Any, worker: int) -> None:
    """Of tanh."""
    _normed(args, _tanh, _tanh_back)


@kernel(NORMED_WORDS)
def normed_logistic(args: Any, worker: int) -> None:
    """Of logistic."""
    _normed(args, _logistic, _logistic_back)


@kernel(NORMED_WORDS)
def normed_softplus(args: Any, worker: int) -> None:
    """Of softplus."""
    _normed(args, _softplus, _softplus_back)


@kernel(NORMED_WORDS)
def normed_soft_sign(args: Any, worker: int) -> None:
    """Of soft_sign."""
    _normed(args, _soft_sign, _soft_sign_back)


@kernel(NORMED_WORDS)
def normed_silu(args: Any, worker: int) -> None:
    """Of silu."""
    _normed(args, _linear, _silu_back)


@kernel(NORMED_WORDS)
def normed_hard_swish(args: Any, worker: int) -> None:
    """Of hard_swish."""
    _normed(args, _linear, _hard_swish_back)


@kernel(NORMED_WORDS)
def normed_gelu(args: Any, worker: int) -> None:
    """Of gelu."""
    _normed(args, _linear, _gelu_back)


@kernel(NORMED_WORDS)
def normed_gelu_tanh(args: Any, worker: int) -> None:
    """Of gelu_tanh."""
    _normed(args, _linear, _gelu_tanh_back)


NORMED: dict[str, Kernel] = {
    "linear": normed_linear,
    "relu": normed_relu,
    "leaky_relu": normed_leaky_relu,
    "prelu": normed_prelu,
    "elu": normed_elu,
    "tanh": normed_tanh,
    "logistic": normed_logistic,
    "forward_logistic": normed_linear,
    "softplus": normed_softplus,
    "soft_sign": normed_soft_sign,
    "silu": normed_silu,
    "hard_swish": normed_hard_swish,
    "gelu": normed_gelu,
    "gelu_tanh": normed_gelu_tanh,
}
