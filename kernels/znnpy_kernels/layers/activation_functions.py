"""Activation functions f and how gradients pass through them, on vectors: one float a lane; `ACTIVATIONS` lists them.

`NAME(v, shape)` is f(v). `NAME_back(y, gradient, shape)` is gradient * f'(v), expressed by the value y = f(v);
that of prelu, silu, hard_swish, gelu and gelu_tanh is expressed by v, as `elu_slope` is. leaky_relu and elu need
slope >= 0, tanh an amplitude other than 0.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.layers.activation_kernels import Activation, activation
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.vector_math import exp, expm1, logistics, normal
from znnpy_kernels.simd.vector_math import logistic as logistic_of
from znnpy_kernels.simd.vector_math import softplus as softplus_of
from znnpy_kernels.simd.vector_math import tanh as tanh_of
from znnpy_kernels.simd.vectors import absolute, fma, select, splat

# Far beyond where the functions differ from their ends in float32.
FAR = 200.0  # larger sums have the values and slopes of the ends, where 0 * Inf would be NaN
TWICE_ROOT = 1.5957691216057308  # 2 sqrt(2 / pi)
# Of Hendrycks and Gimpel's approximation (arXiv 1606.08415).
CUBIC = 0.044715
MOST = 1e30  # sums beyond it have the soft_sign of Inf, whose quotient would be NaN


@inlined
def linear(x: Any, shape: Any) -> Any:
    return x


@inlined
def relu(x: Any, shape: Any) -> Any:
    # `<=` and not `>`: a NaN is not replaced by 0, as comparisons with it are false.
    return select(x <= splat(0.0), splat(0.0), x)


@inlined
def leaky_relu(x: Any, shape: Any) -> Any:
    # A NaN goes the second way, and stays.
    return select(x > splat(0.0), x, x * splat(shape.slope))


@inlined
def prelu(x: Any, shape: Any) -> Any:
    return select(x > splat(0.0), x, x * shape.slopes)


@inlined
def elu(x: Any, shape: Any) -> Any:
    return select(x > splat(0.0), x, splat(shape.slope) * expm1(x))


@inlined
def tanh(x: Any, shape: Any) -> Any:
    return splat(shape.amplitude) * tanh_of(splat(shape.gain) * x)


@inlined
def logistic(x: Any, shape: Any) -> Any:
    return logistic_of(x)


@inlined
def softplus(x: Any, shape: Any) -> Any:
    return softplus_of(x)


@inlined
def soft_sign(x: Any, shape: Any) -> Any:
    # Clipped on both sides; a NaN passes both comparisons unchanged.
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
def silu(x: Any, shape: Any) -> Any:
    return _least(x) * logistic_of(x)


@inlined
def hard_swish(x: Any, shape: Any) -> Any:
    # x (x + 3) / 6, with the quotient as a product.
    y = x * ((x + splat(3.0)) * splat(1.0 / 6.0))
    # What overflows lies beyond the ends, and is replaced here.
    y = select(x <= splat(-3.0), splat(0.0), y)
    return select(x >= splat(3.0), x, y)


@inlined
def gelu(x: Any, shape: Any) -> Any:
    share, _ = normal(x)
    return _least(x) * share


@inlined
def gelu_tanh(x: Any, shape: Any) -> Any:
    x = _least(x)
    # 0.5 (1 + tanh(u)) is the logistic of 2 u: one exponential instead of a tanh.
    return x * logistic_of(splat(TWICE_ROOT) * x * fma(x * x, splat(CUBIC), splat(1.0)))


@inlined
def linear_back(y: Any, g: Any, shape: Any) -> Any:
    return g


@inlined
def relu_back(y: Any, g: Any, shape: Any) -> Any:
    return select(y <= splat(0.0), splat(0.0), g)


@inlined
def leaky_relu_back(y: Any, g: Any, shape: Any) -> Any:
    return select(y > splat(0.0), g, g * splat(shape.slope))


@inlined
def prelu_back(v: Any, g: Any, shape: Any) -> Any:
    return select(v > splat(0.0), g, g * shape.slopes)


@inlined
def elu_back(y: Any, g: Any, shape: Any) -> Any:
    return select(y > splat(0.0), g, g * (y + splat(shape.slope)))


@inlined
def elu_slope(v: Any, g: Any, shape: Any) -> Any:
    """Return what `elu_back` returns, from the sum."""
    return select(v > splat(0.0), g, g * (splat(shape.slope) * exp(v)))


@inlined
def tanh_back(y: Any, g: Any, shape: Any) -> Any:
    amplitude = splat(shape.amplitude)
    return g * (splat(shape.gain / shape.amplitude) * (amplitude - y) * (amplitude + y))


@inlined
def logistic_back(y: Any, g: Any, shape: Any) -> Any:
    return g * (y * (splat(1.0) - y))


@inlined
def softplus_back(y: Any, g: Any, shape: Any) -> Any:
    # 1 - e^-y is the logistic of the sum; by expm1, so values near 0 keep their digits.
    return g * -expm1(-y)


@inlined
def soft_sign_back(y: Any, g: Any, shape: Any) -> Any:
    rest = splat(1.0) - absolute(y)
    return g * (rest * rest)


@inlined
def silu_back(v: Any, g: Any, shape: Any) -> Any:
    v = _near(v)
    share, rest = logistics(v)
    return g * (share * fma(v, rest, splat(1.0)))


@inlined
def hard_swish_back(v: Any, g: Any, shape: Any) -> Any:
    # The slope at -3 is taken as 0, and at 3 as that of the middle.
    slope = fma(v, splat(1.0 / 3.0), splat(0.5))
    slope = select(v <= splat(-3.0), splat(0.0), slope)
    return g * select(v > splat(3.0), splat(1.0), slope)


@inlined
def gelu_back(v: Any, g: Any, shape: Any) -> Any:
    v = _near(v)
    share, e = normal(v)
    # 1 / sqrt(2 pi) times e^(-v^2 / 2): the density.
    return g * fma(v, e * splat(0.3989422804014327), share)


@inlined
def gelu_tanh_back(v: Any, g: Any, shape: Any) -> Any:
    v = _near(v)
    square = v * v
    u = splat(TWICE_ROOT) * v * fma(square, splat(CUBIC), splat(1.0))
    # The derivative of u: 2 sqrt(2 / pi) (1 + 3 * CUBIC * v^2).
    steep = splat(TWICE_ROOT) * fma(square, splat(3.0 * CUBIC), splat(1.0))
    share, rest = logistics(u)
    return g * (share * fma(v * steep, rest, splat(1.0)))


_ALL = {
    # Whichever gradient there is: by the value saves keeping the sum, by the sum serves behind norms.
    "linear": activation("linear", linear, by_value=linear_back, by_sum=linear_back),
    "relu": activation("relu", relu, by_value=relu_back, by_sum=relu_back),
    "leaky_relu": activation(
        "leaky_relu", leaky_relu, by_value=leaky_relu_back, by_sum=leaky_relu_back
    ),
    "prelu": activation("prelu", prelu, by_sum=prelu_back),
    "elu": activation("elu", elu, by_value=elu_back, by_sum=elu_slope),
    "tanh": activation("tanh", tanh, by_value=tanh_back),
    "logistic": activation("logistic", logistic, by_value=logistic_back, of_zero=1),
    "softplus": activation("softplus", softplus, by_value=softplus_back, of_zero=1),
    "soft_sign": activation("soft_sign", soft_sign, by_value=soft_sign_back),
    "silu": activation("silu", silu, by_sum=silu_back),
    "hard_swish": activation("hard_swish", hard_swish, by_sum=hard_swish_back),
    "gelu": activation("gelu", gelu, by_sum=gelu_back),
    "gelu_tanh": activation("gelu_tanh", gelu_tanh, by_sum=gelu_tanh_back),
}
# A statement that is no plain assignment would count for all functions of this file (`source_hash`).
ACTIVATIONS: dict[str, Activation] = {
    **_ALL,
    # ZNN's: the logistic forward, the identity backward, for costs made on its input.
    "forward_logistic": _ALL["linear"]._replace(forward=_ALL["logistic"].forward),
}
