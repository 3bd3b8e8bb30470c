"""Transfer functions forward and backward, against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from blocked_images import Blocked, blocks_of, normal, same_bits
from scipy.special import expit, ndtr
from znnpy_kernels.layers.activation_functions import ACTIVATIONS
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES

SLOPE, AMPLITUDE, GAIN = 0.3, 1.7159, 0.6666
SLOPES = np.linspace(-0.3, 0.8, LANES, dtype=np.float32)
SHAPE = {"slopes": SLOPES, "slope": SLOPE, "amplitude": AMPLITUDE, "gain": GAIN}
BENT = np.sqrt(2 / np.pi)


def bent(v: Any) -> Any:
    return 2 * BENT * (v + 0.044715 * v**3)


def sloped(v: Any) -> Any:
    """The slope of each image, the first axis; the first image's where there is none."""
    if v.ndim < 4:
        return float(SLOPES[0])
    return np.resize(SLOPES, v.shape[0]).astype(float)[:, None, None, None]


FUNCTIONS = {
    "linear": lambda v: v,
    "relu": lambda v: np.maximum(v, 0),
    "leaky_relu": lambda v: np.where(v > 0, v, SLOPE * v),
    "elu": lambda v: np.where(v > 0, v, SLOPE * np.expm1(np.minimum(v, 0))),
    "tanh": lambda v: AMPLITUDE * np.tanh(GAIN * v),
    "logistic": lambda v: 1 / (1 + np.exp(-v)),
    "forward_logistic": lambda v: 1 / (1 + np.exp(-v)),
    "softplus": lambda v: np.logaddexp(v, 0),
    "soft_sign": lambda v: np.copysign(1 / (1 + 1 / np.abs(v)), v),
    "prelu": lambda v: np.where(v > 0, v, sloped(v) * v),
    "silu": lambda v: np.maximum(v, -1e3) * expit(v),
    "hard_swish": lambda v: np.maximum(v, -1e3) * np.clip((v + 3) / 6, 0, 1),
    "gelu": lambda v: np.maximum(v, -1e3) * ndtr(v),
    "gelu_tanh": lambda v: np.maximum(v, -1e3) * expit(bent(v)),
}
DERIVATIVES = {
    "linear": np.ones_like,
    "relu": lambda y: (y > 0).astype(float),
    "leaky_relu": lambda y: np.where(y > 0, 1, SLOPE),
    "elu": lambda y: np.where(y > 0, 1, y + SLOPE),
    "tanh": lambda y: GAIN / AMPLITUDE * (AMPLITUDE**2 - y**2),
    "logistic": lambda y: y * (1 - y),
    "forward_logistic": np.ones_like,
    "softplus": lambda y: -np.expm1(-y),
    "soft_sign": lambda y: (1 - np.abs(y)) ** 2,
    "prelu": lambda v: np.where(v > 0, 1, sloped(v)),
    "silu": lambda v: expit(v) * (1 + np.clip(v, -1e3, 1e3) * expit(-v)),
    "hard_swish": lambda v: np.where(v > 3, 1, np.where(v > -3, v / 3 + 0.5, 0)),
    "gelu": lambda v: (
        ndtr(v) + np.clip(v, -1e3, 1e3) * np.exp(-0.5 * np.clip(v, -1e3, 1e3) ** 2) * BENT / 2
    ),
    "gelu_tanh": lambda v: (
        expit(bent(v))
        * (
            1
            + 2
            * BENT
            * np.clip(v, -1e3, 1e3)
            * (1 + 3 * 0.044715 * np.clip(v, -1e3, 1e3) ** 2)
            * expit(-bent(v))
        )
    ),
}


def accuracy(name: str) -> float:
    """Relative; the tail of gelu_tanh is as exact as the cubic in its exponent."""
    return 2e-5 if name == "gelu_tanh" else 4e-7


SIZES = [(1, 5), (3, 4), (LANES, 1), (LANES + 1, 9), (33, 3)]


def forward(name: str, source: Blocked, target: Blocked, bias: Any, cuts: int = 1) -> None:
    for block, real in blocks_of(source.channels):
        for z in range(cuts):
            ACTIVATIONS[name].forward.run(
                **source.rows("source", block, z), **target.rows("target", block, z),
                bias=0 if bias is None else address(bias) + 4 * LANES * block, channels=real,
                planes=source.shape[0] // cuts, rows=source.shape[1],
                length=source.shape[2] * LANES, planar=0, affine=0, **SHAPE,
            )  # fmt: skip


def backward(name: str, output: Blocked, gradient: Blocked, target: Blocked, sums: Any) -> None:
    for block, real in blocks_of(output.channels):
        ACTIVATIONS[name].backward.run(
            **output.rows("output", block), **gradient.rows("gradient", block),
            **target.rows("target", block),
            bias_gradient=0 if sums is None else address(sums) + 4 * LANES * block,
            channels=real, planes=output.shape[0], rows=output.shape[1],
            length=output.shape[2] * LANES, **SHAPE,
        )  # fmt: skip


def padded(bias: Any) -> Any:
    whole = np.full(-(-bias.size // LANES) * LANES, 7.0, np.float32)
    whole[: bias.size] = bias
    return whole


@pytest.mark.quick(18)
@pytest.mark.parametrize(("channels", "width"), SIZES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_forward(name: str, channels: int, width: int) -> None:
    x, bias = normal(1, channels, 2, 3, width, scale=3.0), normal(2, channels)
    source, target = Blocked.of(x), Blocked(channels, x.shape[1:])
    forward(name, source, target, padded(bias))
    exact = FUNCTIONS[name](np.float64(x + bias[:, None, None, None]))
    np.testing.assert_allclose(target.planar(), exact, rtol=accuracy(name), atol=1e-37)
    assert not target.pad().any()
    assert target.gaps_intact()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_forward_in_place_in_parts_and_without_bias(name: str) -> None:
    x = normal(1, LANES + 3, 2, 3, 5)
    source, target = Blocked.of(x), Blocked(LANES + 3, (2, 3, 5))
    forward(name, source, target, None)
    np.testing.assert_allclose(target.planar(), FUNCTIONS[name](np.float64(x)), rtol=accuracy(name))
    forward(name, source, source, None, cuts=2)
    assert same_bits(source.view, target.view)


def row(values: Any) -> Blocked:
    """Values along one row of an image."""
    return Blocked.of(np.asarray(values, np.float32)[None, None, None])


KEPT = ("prelu", "silu", "hard_swish", "gelu", "gelu_tanh")  # their gradients need the sum


@pytest.mark.parametrize("name", KEPT)
def test_the_sum_stays_at_the_source(name: str) -> None:
    x, bias = normal(1, LANES + 3, 2, 3, 5), normal(2, LANES + 3)
    source, target = Blocked.of(x), Blocked(LANES + 3, (2, 3, 5))
    forward(name, source, target, padded(bias))
    np.testing.assert_array_equal(source.planar(), x + bias[:, None, None, None])
    assert not source.pad().any()
    again = Blocked.of(x)
    forward(name, again, again, padded(bias))
    assert same_bits(again.view, target.view)


@pytest.mark.parametrize("name", ["softplus", "soft_sign", *KEPT])
def test_over_the_float_range(name: str) -> None:
    ends = [0.0, 1e-38, 1e-30, 87, 88, 89, 1e4, 1e9, 1e30, 3e38, np.inf]
    some = np.concatenate([np.logspace(-30, 38, 4001), np.linspace(0.01, 90, 4001), ends])
    x = np.concatenate([-some, some]).astype(np.float32)
    source = row(x)
    forward(name, source, source, None)
    y = source.planar().ravel()
    with np.errstate(divide="ignore"):
        exact = FUNCTIONS[name](np.float64(x))
    # e^x below 1e-38 is 0, and is multiplied by sums; at its zero the slope is exact to its terms.
    near, least = (1e-6, 3e-36) if name in KEPT else (5e-7, 2e-38)
    np.testing.assert_allclose(y, exact, rtol=max(near, accuracy(name)), atol=least)
    if name in KEPT:
        source, y = row(x), x
    gradient = row(np.ones_like(x))
    backward(name, source, gradient, gradient, None)
    least = 4e-7 if name in KEPT else least
    slopes = DERIVATIVES[name](np.float64(y))
    np.testing.assert_allclose(gradient.planar().ravel(), slopes, rtol=5e-7, atol=least)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_nan_and_inf_propagate(name: str) -> None:
    x = normal(1, 3, 1, 1, 9)
    x[1, 0, 0, 4], x[2, 0, 0, 1] = np.nan, np.inf
    source = Blocked.of(x)
    forward(name, source, source, None)
    y = source.planar()
    np.testing.assert_array_equal(np.isnan(y), np.isnan(x))
    assert y[2, 0, 0, 1] == np.float32(FUNCTIONS[name](np.float64(np.inf)))
    gradient = Blocked.of(np.where(np.isnan(x), np.nan, 1).astype(np.float32))
    sums = np.zeros(LANES, np.float32)
    backward(name, source, gradient, gradient, sums)
    assert np.isnan(gradient.planar()[1, 0, 0, 4])
    assert np.isnan(sums[1])
    assert not np.isnan(sums[0])


@pytest.mark.quick(18)
@pytest.mark.parametrize(("channels", "width"), SIZES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_backward_and_bias_gradient(name: str, channels: int, width: int) -> None:
    y = FUNCTIONS[name](np.float64(normal(1, channels, 2, 3, width))).astype(np.float32)
    g = normal(2, *y.shape)
    target = Blocked(channels, y.shape[1:], gap=3)
    sums = np.full(-(-channels // LANES) * LANES, 9.0, np.float32)
    output, gradient = Blocked.of(y), Blocked.of(g)
    backward(name, output, gradient, target, sums)
    exact = np.float64(g) * DERIVATIVES[name](np.float64(y))
    np.testing.assert_allclose(target.planar(), exact, rtol=3e-6, atol=2e-7)
    np.testing.assert_allclose(sums[:channels], exact.sum((1, 2, 3)), rtol=1e-5, atol=2e-5)
    assert not sums[channels:].any()
    assert not target.pad().any()
    assert target.gaps_intact()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_backward_in_place_without_bias(name: str) -> None:
    y = FUNCTIONS[name](np.float64(normal(1, 5, 2, 3, 7))).astype(np.float32)
    output, gradient, target = Blocked.of(y), Blocked.of(normal(2, *y.shape)), Blocked.of(y)
    backward(name, output, gradient, target, None)
    backward(name, output, gradient, gradient, None)
    assert same_bits(gradient.view, target.view)


@pytest.mark.quick(16)
@pytest.mark.parametrize("width", [1, LANES - 1, LANES, 4 * LANES + 3, 9 * LANES])
@pytest.mark.parametrize("name", sorted(set(ACTIVATIONS) - {"prelu"}))
def test_planar_images(name: str, width: int) -> None:
    x, bias = normal(1, 1, 2, 3, width, scale=3.0), normal(2, 1)
    source, target = (Blocked(1, x.shape[1:], lanes=1) for _ in range(2))
    source.view[0, ..., 0] = x[0]
    ACTIVATIONS[name].forward.run(
        **source.rows("source"), **target.rows("target"), bias=bias, channels=LANES,
        planes=2, rows=3, length=width, planar=1, affine=0, **SHAPE,
    )  # fmt: skip
    y = FUNCTIONS[name](np.float64(x[0] + bias[0]))
    np.testing.assert_allclose(target.view[0, ..., 0], y, rtol=accuracy(name), atol=1e-37)
    assert target.gaps_intact()
    gradient, sums = Blocked(1, x.shape[1:], lanes=1), np.full(LANES + 1, 5.0, np.float32)
    gradient.view[0, ..., 0] = normal(3, 2, 3, width)
    exact = np.float64(gradient.view[0, ..., 0]) * DERIVATIVES[name](
        np.float64(target.view[0, ..., 0])
    )
    ACTIVATIONS[name].backward.run(
        **target.rows("output"), **gradient.rows("gradient"), **gradient.rows("target"),
        bias_gradient=sums, channels=LANES, planes=2, rows=3, length=width, **SHAPE,
    )  # fmt: skip
    np.testing.assert_allclose(gradient.view[0, ..., 0], exact, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        sums[:LANES].sum(dtype=np.float64), exact.sum(), rtol=1e-4, atol=1e-4
    )
    assert gradient.gaps_intact()
    assert sums[LANES] == 5
