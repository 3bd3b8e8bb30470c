"""Transfer functions on channel blocks, forward and backward, with bias and its gradient.

Forward kernels (`FORWARD[name]`): y = f(v), v = (x - centre) * scale + bias. Words: `source`, `target`
byte addresses of the part's first voxel (the same for in place), `*_z`, `*_y` strides in floats,
`bias` the address of LANES floats of this block or 0, `affine` that of LANES scales and then LANES
centres (0: x + bias), `channels` the real channels of the block, `planes`, `rows`,
`length` (row length in floats), `slope` for leaky_relu and elu, `amplitude` and `gain` for tanh.
`slopes` the address of LANES floats for prelu, 0 for others.
`planar` 1: one planar image, whose bias is one float; `channels` is LANES then.

Backward kernels (`BACKWARD[name]`): target = gradient * f'(x) expressed by the output y, and the
sum of target over this part as LANES floats at `bias_gradient` (0: not wanted; the parts' sums
are added by the caller's tree; of a planar image sums of every LANES-th voxel). `target` may be
`gradient`. leaky_relu and elu need slope >= 0, tanh an amplitude other than 0.

The gradients of prelu, silu, hard_swish, gelu and gelu_tanh are expressed by v: without `affine` their
forward kernels leave v at `source` unless that is the target, their backward kernels take it for
`output`.

Pad lanes stay 0. float32; parts are independent and may run at once; gaps of rows are not
touched.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from znnpy_kernels.machine.abi import Kernel, kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import float_argument, floats
from znnpy_kernels.simd.lanes import LANES, VECTOR_BYTES
from znnpy_kernels.simd.vector_math import exp, expm1, logistic, logistics, normal, softplus, tanh
from znnpy_kernels.simd.vectors import (
    absolute,
    below,
    fma,
    load,
    load_masked,
    select,
    splat,
    store,
    store_masked,
)

FAR = 200.0  # larger sums have the values and slopes of the ends, where 0 * Inf would be NaN
TWICE_ROOT = 1.5957691216057308  # 2 sqrt(2 / pi)
CUBIC = 0.044715
MOST = 1e30  # sums beyond it have the soft_sign of Inf, whose quotient would be NaN
FORWARD_WORDS = words(
    "source source_z source_y target target_z target_y bias affine channels planes rows length "
    "slope:float planar amplitude:float gain:float slopes",
)
BACKWARD_WORDS = words(
    "output output_z output_y gradient gradient_z gradient_y target target_z target_y "
    "bias_gradient channels planes rows length slope:float amplitude:float gain:float slopes",
)


class Shape(NamedTuple):
    """The numbers that shape a function: each takes those that it knows."""

    slope: float
    amplitude: float
    gain: float
    slopes: Any


@inlined
def shape_of(args: Any, at: Any) -> Any:
    """The numbers in a kernel's words, which `at` says; `slopes` is a vector, one for each lane."""
    slopes = splat(0.0)
    if args[at.slopes]:
        slopes = load(args[at.slopes])
    return Shape(
        float_argument(args[at.slope]),
        float_argument(args[at.amplitude]),
        float_argument(args[at.gain]),
        slopes,
    )


@inlined
def _linear(x: Any, shape: Any) -> Any:
    return x


@inlined
def _relu(x: Any, shape: Any) -> Any:
    return select(x <= splat(0.0), splat(0.0), x)


@inlined
def _leaky_relu(x: Any, shape: Any) -> Any:
    return select(x > splat(0.0), x, x * splat(shape.slope))


@inlined
def _prelu(x: Any, shape: Any) -> Any:
    return select(x > splat(0.0), x, x * shape.slopes)


@inlined
def _elu(x: Any, shape: Any) -> Any:
    return select(x > splat(0.0), x, splat(shape.slope) * expm1(x))


@inlined
def _tanh(x: Any, shape: Any) -> Any:
    return splat(shape.amplitude) * tanh(splat(shape.gain) * x)


@inlined
def _logistic(x: Any, shape: Any) -> Any:
    return logistic(x)


@inlined
def _softplus(x: Any, shape: Any) -> Any:
    return softplus(x)


@inlined
def _soft_sign(x: Any, shape: Any) -> Any:
    x = select(x > splat(MOST), splat(MOST), x)
    x = select(x < splat(-MOST), splat(-MOST), x)
    return x / (splat(1.0) + absolute(x))


@inlined
def _least(x: Any) -> Any:
    return select(x < splat(-FAR), splat(-FAR), x)


@inlined
def _near(x: Any) -> Any:
    x = _least(x)
    return select(x > splat(FAR), splat(FAR), x)


@inlined
def _silu(x: Any, shape: Any) -> Any:
    return _least(x) * logistic(x)


@inlined
def _hard_swish(x: Any, shape: Any) -> Any:
    y = x * ((x + splat(3.0)) * splat(1.0 / 6.0))
    y = select(x <= splat(-3.0), splat(0.0), y)
    return select(x >= splat(3.0), x, y)


@inlined
def _gelu(x: Any, shape: Any) -> Any:
    share, _ = normal(x)
    return _least(x) * share


@inlined
def _gelu_tanh(x: Any, shape: Any) -> Any:
    x = _least(x)
    return x * logistic(splat(TWICE_ROOT) * x * fma(x * x, splat(CUBIC), splat(1.0)))


@inlined
def _linear_back(y: Any, g: Any, shape: Any) -> Any:
    return g


@inlined
def _relu_back(y: Any, g: Any, shape: Any) -> Any:
    return select(y <= splat(0.0), splat(0.0), g)


@inlined
def _leaky_relu_back(y: Any, g: Any, shape: Any) -> Any:
    return select(y > splat(0.0), g, g * splat(shape.slope))


@inlined
def _prelu_back(v: Any, g: Any, shape: Any) -> Any:
    return select(v > splat(0.0), g, g * shape.slopes)


@inlined
def _elu_back(y: Any, g: Any, shape: Any) -> Any:
    return select(y > splat(0.0), g, g * (y + splat(shape.slope)))


@inlined
def _elu_slope(v: Any, g: Any, shape: Any) -> Any:
    """The same as `_elu_back`, from the sum."""
    return select(v > splat(0.0), g, g * (splat(shape.slope) * exp(v)))


@inlined
def _tanh_back(y: Any, g: Any, shape: Any) -> Any:
    amplitude = splat(shape.amplitude)
    return g * (splat(shape.gain / shape.amplitude) * (amplitude - y) * (amplitude + y))


@inlined
def _logistic_back(y: Any, g: Any, shape: Any) -> Any:
    return g * (y * (splat(1.0) - y))


@inlined
def _softplus_back(y: Any, g: Any, shape: Any) -> Any:
    return g * -expm1(-y)


@inlined
def _soft_sign_back(y: Any, g: Any, shape: Any) -> Any:
    rest = splat(1.0) - absolute(y)
    return g * (rest * rest)


@inlined
def _silu_back(v: Any, g: Any, shape: Any) -> Any:
    v = _near(v)
    share, rest = logistics(v)
    return g * (share * fma(v, rest, splat(1.0)))


@inlined
def _hard_swish_back(v: Any, g: Any, shape: Any) -> Any:
    slope = fma(v, splat(1.0 / 3.0), splat(0.5))
    slope = select(v <= splat(-3.0), splat(0.0), slope)
    return g * select(v > splat(3.0), splat(1.0), slope)


@inlined
def _gelu_back(v: Any, g: Any, shape: Any) -> Any:
    v = _near(v)
    share, e = normal(v)
    return g * fma(v, e * splat(0.3989422804014327), share)


@inlined
def _gelu_tanh_back(v: Any, g: Any, shape: Any) -> Any:
    v = _near(v)
    square = v * v
    u = splat(TWICE_ROOT) * v * fma(square, splat(CUBIC), splat(1.0))
    steep = splat(TWICE_ROOT) * fma(square, splat(3.0 * CUBIC), splat(1.0))
    share, rest = logistics(u)
    return g * (share * fma(v * steep, rest, splat(1.0)))


class Affine(NamedTuple):
    """What a function is of: (x - centre) * scale + bias, for each lane."""

    scale: Any
    centre: Any
    bias: Any


@inlined
def _affine(args: Any, real: Any) -> Any:
    at = FORWARD_WORDS
    scale, centre = splat(1.0), splat(0.0)
    if args[at.affine]:
        scale, centre = load(args[at.affine]), load(args[at.affine] + VECTOR_BYTES)
    return Affine(scale, centre, _bias(args, real))


@inlined
def _bias(args: Any, real: Any) -> Any:
    at = FORWARD_WORDS
    if args[at.bias] == 0:
        return splat(0.0)
    if args[at.planar]:
        return splat(floats(args[at.bias])[0])
    return load_masked(args[at.bias], real)


@inlined
def _applied(x: Any, affine: Any) -> Any:
    return fma(x - affine.centre, affine.scale, affine.bias)


@inlined
def _forward(args: Any, function: Any, keeps: int = 0, masks: int = 0) -> None:
    """All rows; `keeps`: v is left at the source, before the target is written, for gradients that need it.

    `masks`: pad lanes are set to 0 afterwards, of functions with f(0) != 0.
    """
    at = FORWARD_WORDS
    shape, real = shape_of(args, FORWARD_WORDS), below(args[at.channels])
    affine, kept = _affine(args, real), keeps and not args[at.affine]
    full = args[at.length] - args[at.length] % LANES
    rest = below(args[at.length] - full)
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            source = args[at.source] + 4 * (z * args[at.source_z] + y * args[at.source_y])
            target = args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y])
            for x in range(0, 4 * full, VECTOR_BYTES):
                total = _applied(load(source + x), affine)
                if kept:
                    store(source + x, total)
                value = function(total, shape)
                if masks:
                    value = select(real, value, splat(0.0))
                store(target + x, value)
            if full < args[at.length]:
                total = _applied(load_masked(source + 4 * full, rest), affine)
                if kept:
                    store_masked(source + 4 * full, rest, total)
                store_masked(target + 4 * full, rest, function(total, shape))


@inlined
def _backward_row(
    output: int, gradient: int, target: int, length: int, shape: Any, derivative: Any
) -> Any:
    """One row; returns its sum, made of four interleaved sums in fixed order."""
    a, b, c, d = splat(0.0), splat(0.0), splat(0.0), splat(0.0)
    full = length // (4 * LANES) * 4 * VECTOR_BYTES
    for x in range(0, full, 4 * VECTOR_BYTES):
        g0 = derivative(load(output + x), load(gradient + x), shape)
        store(target + x, g0)
        x1 = x + VECTOR_BYTES
        g1 = derivative(load(output + x1), load(gradient + x1), shape)
        store(target + x1, g1)
        x2 = x + 2 * VECTOR_BYTES
        g2 = derivative(load(output + x2), load(gradient + x2), shape)
        store(target + x2, g2)
        x3 = x + 3 * VECTOR_BYTES
        g3 = derivative(load(output + x3), load(gradient + x3), shape)
        store(target + x3, g3)
        a, b, c, d = a + g0, b + g1, c + g2, d + g3
    even = 4 * (length - length % LANES)
    for x in range(full, even, VECTOR_BYTES):
        g0 = derivative(load(output + x), load(gradient + x), shape)
        store(target + x, g0)
        a = a + g0
    if even < 4 * length:
        rest = below(length % LANES)
        y0, g0 = load_masked(output + even, rest), load_masked(gradient + even, rest)
        g0 = derivative(y0, g0, shape)
        store_masked(target + even, rest, g0)
        a = a + select(rest, g0, splat(0.0))
    return (a + b) + (c + d)


@inlined
def _backward(args: Any, derivative: Any) -> None:
    at = BACKWARD_WORDS
    shape = shape_of(args, BACKWARD_WORDS)
    sums = splat(0.0)
    for z in range(args[at.planes]):
        for y in range(args[at.rows]):
            output = args[at.output] + 4 * (z * args[at.output_z] + y * args[at.output_y])
            gradient = args[at.gradient] + 4 * (z * args[at.gradient_z] + y * args[at.gradient_y])
            target = args[at.target] + 4 * (z * args[at.target_z] + y * args[at.target_y])
            sums = sums + _backward_row(
                output, gradient, target, args[at.length], shape, derivative
            )
    if args[at.bias_gradient]:
        store(args[at.bias_gradient], select(below(args[at.channels]), sums, splat(0.0)))


@kernel(FORWARD_WORDS)
def transfer_linear(args: Any, worker: int) -> None:
    """y = x + bias."""
    _forward(args, _linear)


@kernel(FORWARD_WORDS)
def transfer_relu(args: Any, worker: int) -> None:
    """y = max(x + bias, 0)."""
    _forward(args, _relu)


@kernel(FORWARD_WORDS)
def transfer_leaky_relu(args: Any, worker: int) -> None:
    """y = v if v > 0 else slope * v, v = x + bias."""
    _forward(args, _leaky_relu)


@kernel(FORWARD_WORDS)
def transfer_prelu(args: Any, worker: int) -> None:
    """y = v if v > 0 else slopes * v; v is left at `source`."""
    _forward(args, _prelu, 1)


@kernel(FORWARD_WORDS)
def transfer_elu(args: Any, worker: int) -> None:
    """y = v if v > 0 else slope * (e^v - 1), v = x + bias."""
    _forward(args, _elu)


@kernel(FORWARD_WORDS)
def transfer_tanh(args: Any, worker: int) -> None:
    """y = amplitude * tanh(gain * (x + bias))."""
    _forward(args, _tanh)


@kernel(FORWARD_WORDS)
def transfer_logistic(args: Any, worker: int) -> None:
    """y = 1 / (1 + e^-(x + bias)); pad lanes 0."""
    _forward(args, _logistic, 0, 1)


@kernel(FORWARD_WORDS)
def transfer_softplus(args: Any, worker: int) -> None:
    """y = log(1 + e^(x + bias)); pad lanes 0."""
    _forward(args, _softplus, 0, 1)


@kernel(FORWARD_WORDS)
def transfer_soft_sign(args: Any, worker: int) -> None:
    """y = v / (1 + |v|), v = x + bias."""
    _forward(args, _soft_sign)


@kernel(FORWARD_WORDS)
def transfer_silu(args: Any, worker: int) -> None:
    """y = v / (1 + e^-v); v = x + bias is left at `source`."""
    _forward(args, _silu, 1)


@kernel(FORWARD_WORDS)
def transfer_hard_swish(args: Any, worker: int) -> None:
    """y = v * min(max(v + 3, 0), 6) / 6; v = x + bias is left at `source`."""
    _forward(args, _hard_swish, 1)


@kernel(FORWARD_WORDS)
def transfer_gelu(args: Any, worker: int) -> None:
    """y = v * P(v), P the normal distribution; v = x + bias is left at `source`."""
    _forward(args, _gelu, 1)


@kernel(FORWARD_WORDS)
def transfer_gelu_tanh(args: Any, worker: int) -> None:
    """y = v / 2 * (1 + tanh(sqrt(2 / pi) (v + 0.044715 v^3))); v = x + bias is left at `source`."""
    _forward(args, _gelu_tanh, 1)


@kernel(BACKWARD_WORDS)
def backward_linear(args: Any, worker: int) -> None:
    """target = gradient; `output` is not read (give any address)."""
    _backward(args, _linear_back)


@kernel(BACKWARD_WORDS)
def backward_relu(args: Any, worker: int) -> None:
    """target = gradient where y > 0 (or y is NaN), else 0."""
    _backward(args, _relu_back)


@kernel(BACKWARD_WORDS)
def backward_leaky_relu(args: Any, worker: int) -> None:
    """target = gradient where y > 0, else slope * gradient."""
    _backward(args, _leaky_relu_back)


@kernel(BACKWARD_WORDS)
def backward_prelu(args: Any, worker: int) -> None:
    """target = gradient where v > 0, else slopes * gradient, v at `output`."""
    _backward(args, _prelu_back)


@kernel(BACKWARD_WORDS)
def backward_elu(args: Any, worker: int) -> None:
    """target = gradient where y > 0, else gradient * (y + slope)."""
    _backward(args, _elu_back)


@kernel(BACKWARD_WORDS)
def backward_tanh(args: Any, worker: int) -> None:
    """target = gradient * gain / amplitude * (amplitude^2 - y^2)."""
    _backward(args, _tanh_back)


@kernel(BACKWARD_WORDS)
def backward_logistic(args: Any, worker: int) -> None:
    """target = gradient * y * (1 - y)."""
    _backward(args, _logistic_back)


@kernel(BACKWARD_WORDS)
def backward_softplus(args: Any, worker: int) -> None:
    """target = gradient * (1 - e^-y)."""
    _backward(args, _softplus_back)


@kernel(BACKWARD_WORDS)
def backward_soft_sign(args: Any, worker: int) -> None:
    """target = gradient * (1 - |y|)^2."""
    _backward(args, _soft_sign_back)


@kernel(BACKWARD_WORDS)
def backward_silu(args: Any, worker: int) -> None:
    """target = gradient * silu'(v), v at `output`."""
    _backward(args, _silu_back)


@kernel(BACKWARD_WORDS)
def backward_hard_swish(args: Any, worker: int) -> None:
    """target = gradient * hard_swish'(v), v at `output`."""
    _backward(args, _hard_swish_back)


@kernel(BACKWARD_WORDS)
def backward_gelu(args: Any, worker: int) -> None:
    """target = gradient * gelu'(v), v at `output`."""
    _backward(args, _gelu_back)


@kernel(BACKWARD_WORDS)
def backward_gelu_tanh(args: Any, worker: int) -> None:
    """target = gradient * gelu_tanh'(v), v at `output`."""
    _backward(args, _gelu_tanh_back)


# forward_logistic (ZNN): the logistic forward, the identity backward, for costs made on its input.
FORWARD: dict[str, Kernel] = {
    "linear": transfer_linear,
    "relu": transfer_relu,
    "leaky_relu": transfer_leaky_relu,
    "prelu": transfer_prelu,
    "elu": transfer_elu,
    "tanh": transfer_tanh,
    "logistic": transfer_logistic,
    "forward_logistic": transfer_logistic,
    "softplus": transfer_softplus,
    "soft_sign": transfer_soft_sign,
    "silu": transfer_silu,
    "hard_swish": transfer_hard_swish,
    "gelu": transfer_gelu,
    "gelu_tanh": transfer_gelu_tanh,
}
BACKWARD: dict[str, Kernel] = {
    "linear": backward_linear,
    "relu": backward_relu,
    "leaky_relu": backward_leaky_relu,
    "prelu": backward_prelu,
    "elu": backward_elu,
    "tanh": backward_tanh,
    "logistic": backward_logistic,
    "forward_logistic": backward_linear,
    "softplus": backward_softplus,
    "soft_sign": backward_soft_sign,
    "silu": backward_silu,
    "hard_swish": backward_hard_swish,
    "gelu": backward_gelu,
    "gelu_tanh": backward_gelu_tanh,
}
