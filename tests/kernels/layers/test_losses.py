"""Losses: sums, wrong counts and gradients, against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from blocked_images import Blocked, Planar, normal, same_bits
from znnpy_kernels.layers import losses
from znnpy_kernels.layers.losses import sum_partials
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES

SIZES = [(1, 5), (3, LANES + 4), (LANES, 1), (LANES + 1, 2 * LANES), (2 * LANES + 1, 3)]
NORMALISER = np.array([0.125, 0.25], np.float32)
NUMBERS = {"gamma": 0.0, "ones": 0.0, "zeros": 0.0, "smoothing": 0.0}


def square(x: Any, t: Any) -> Any:
    return (x - t) ** 2, 2 * (x - t), (x > 0.5) != (t > 0.5)


def binomial(x: Any, t: Any) -> Any:
    loss = np.logaddexp(0, x) - x * t
    return loss, 1 / (1 + np.exp(-x)) - t, (x > 0) != (t > 0.5)


def softmax(x: Any, t: Any) -> Any:
    shifted = x - x.max(0)
    log_p = shifted - np.log(np.exp(shifted).sum(0))
    wrong = (x.argmax(0) != t.argmax(0))[None]
    return -(t * log_p).sum(0)[None], np.exp(log_p) * t.sum(0) - t, wrong


def focal(x: Any, t: Any) -> Any:
    p, yes, no = 1 / (1 + np.exp(-x)), np.logaddexp(0, -x), np.logaddexp(0, x)
    ones, zeros = 0.3 * t * (1 - p) ** GAMMA, 0.7 * (1 - t) * p**GAMMA
    slope = zeros * (GAMMA * (1 - p) * no + p) - ones * (GAMMA * p * yes + 1 - p)
    return ones * yes + zeros * no, slope, (x > 0) != (t > 0.5)


def counted(t: Any) -> Any:
    """Targets smoothed and weighed by class."""
    return ((1 - SMOOTHING) * t + SMOOTHING / len(t)) * weights_of(len(t))[:, None, None, None]


def weights_of(channels: int) -> Any:
    return np.linspace(0.5, 2, channels).astype(np.float32)


def smoothed_softmax(x: Any, t: Any) -> Any:
    loss, slope, _ = softmax(x, counted(t))
    return loss, slope, softmax(x, t)[2]


def focal_softmax(x: Any, t: Any) -> Any:
    _, _, wrong = softmax(x, t)
    log_p, q = -np.stack([softmax(x, e)[0][0] for e in one_hots(x)]), counted(t)
    p = np.exp(log_p)
    loss = -(q * (1 - p) ** GAMMA * log_p).sum(0)[None]
    each = q * ((1 - p) ** (GAMMA - 1) * GAMMA * p * log_p - (1 - p) ** GAMMA)
    return loss, each - p * each.sum(0), wrong


def one_hots(x: Any) -> Any:
    for c in range(len(x)):
        yield np.broadcast_to(np.eye(len(x))[c][:, None, None, None], x.shape)


GAMMA, SMOOTHING = 1.5, 0.1
FOCAL = {"gamma": GAMMA, "ones": 0.3, "zeros": 0.7}
CASES: dict[str, tuple[str, Any, dict[str, float]]] = {
    "square": ("square", square, {}),
    "binomial_cross_entropy": ("binomial_cross_entropy", binomial, {}),
    "softmax": ("softmax", softmax, {}),
    "smoothed": ("softmax", smoothed_softmax, {"smoothing": SMOOTHING}),
    "focal": ("focal", focal, FOCAL),
    "focal_softmax": ("focal_softmax", focal_softmax, FOCAL | {"smoothing": SMOOTHING}),
}
OF_CLASSES = ("softmax", "smoothed", "focal_softmax")


def made(name: str, channels: int, width: int) -> tuple[Any, Any, Any]:
    x = normal(1, channels, 2, 3, width, scale=4.0)
    random = np.random.default_rng(2)
    t = random.random(x.shape).astype(np.float32)
    if name in OF_CLASSES:
        t = t / t.sum(0)
        t[:, 0] = np.eye(channels)[random.integers(0, channels, t.shape[2:])].transpose(2, 0, 1)
    else:
        t[:, 0] = t[:, 0] > 0.5
    weight = random.random(x.shape).astype(np.float32)
    weight[weight < 0.2] = 0
    return x, t, weight


def run(
    name: str, output: Blocked, gradient: Blocked | None, target: Planar, weight: Planar | None,
    z: int = 0, planes: int = 2, biases: Any = None, relu_slope: float = 1.0,
) -> Any:  # fmt: skip
    partial = np.full(3, 7.0)
    fields: dict[str, int] = {"weight": 0, "weight_image": 0, "weight_z": 0, "weight_y": 0}
    fields |= weight.whole("weight", z) if weight else {}
    places = {"gradient": 0, "gradient_block": 0, "gradient_z": 0, "gradient_y": 0}
    places |= gradient.whole("gradient", z) if gradient else {}
    kernel, _, numbers = CASES[name]
    plain = name == "softmax"
    classes = np.ones(output.channels, np.float32) if plain else weights_of(output.channels)
    getattr(losses, f"{kernel}_loss").run(
        **output.whole("output", z), **places, **target.whole("target", z), **fields,
        **NUMBERS | numbers, classes=classes,
        normaliser=NORMALISER, partial=partial, channels=output.channels,
        planes=planes, rows=3, width=output.shape[2], lanes=output.lanes, places=0,
        bias_gradient=0 if biases is None else biases, bias_block=LANES, relu_slope=relu_slope,
    )  # fmt: skip
    assert partial[2] == 7.0
    return partial[:2]


@pytest.mark.quick(20)
@pytest.mark.parametrize(("channels", "width"), SIZES)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradient(name: str, weighted: bool, channels: int, width: int) -> None:
    x, t, weight = made(name, channels, width)
    output, target = Blocked.of(x, pad=5.0), Planar(t)
    gradient = Blocked(channels, x.shape[1:], gap=3)
    found = run(name, output, gradient, target, Planar(weight) if weighted else None)
    loss, slope, wrong = CASES[name][1](np.float64(x), np.float64(t))
    w = np.float64(weight if weighted else np.ones_like(weight))
    w = w[:1] if name in OF_CLASSES else w
    np.testing.assert_allclose(found, [(w * loss).sum(), (w * wrong).sum()], rtol=1e-6)
    np.testing.assert_allclose(gradient.planar(), slope * w * NORMALISER[0], rtol=1e-5, atol=3e-7)
    assert not gradient.pad().any()
    assert gradient.gaps_intact()
    assert same_bits(run(name, output, None, target, Planar(weight) if weighted else None), found)


@pytest.mark.quick(12)
@pytest.mark.parametrize("value", [np.nan, np.inf, -3e38])
@pytest.mark.parametrize("lanes", [1, LANES])
@pytest.mark.parametrize("name", CASES)
def test_targets_that_weigh_nothing_may_be_anything(name: str, lanes: int, value: float) -> None:
    x, t, weight = made(name, 3, LANES + 4)
    hidden = np.broadcast_to(weight[:1] if name in OF_CLASSES else weight, t.shape) == 0
    assert 0 < hidden.sum() < hidden.size
    whole, found = np.resize(x, (1, LANES, *x.shape[1:])), []
    for target in (np.where(hidden, np.float32(0), t), np.where(hidden, np.float32(value), t)):
        output, gradient = (Blocked(3, x.shape[1:], lanes=lanes) for _ in range(2))
        output.view[:] = np.moveaxis(x[:, None] if lanes == 1 else whole, 1, -1)
        biases = np.zeros(3 * LANES, np.float32)
        sums = run(name, output, gradient, Planar(target), Planar(weight), biases=biases)
        found.append((sums, gradient.planar(), biases))
    for one, other in zip(*found, strict=True):
        assert np.isfinite(one).all()
        assert np.array_equal(one, other)


@pytest.mark.parametrize("name", CASES)
def test_gradient_is_the_same_in_parts_and_sums_add_up(name: str) -> None:
    x, t, weight = made(name, LANES + 3, 21)
    output, target, weights = Blocked.of(x), Planar(t), Planar(weight)
    whole, parts = Blocked(LANES + 3, x.shape[1:]), Blocked(LANES + 3, x.shape[1:])
    found = run(name, output, whole, target, weights)
    sums = np.array([run(name, output, parts, target, weights, z, 1) for z in range(2)])
    assert same_bits(parts.view, whole.view)
    np.testing.assert_allclose(sums.sum(0), found, rtol=1e-12)


@pytest.mark.parametrize(("channels", "width"), SIZES)
@pytest.mark.parametrize("name", ["square", "binomial_cross_entropy", "focal"])
def test_bias_gradient_is_the_sum_over_the_part(name: str, channels: int, width: int) -> None:
    x, t, weight = made(name, channels, width)
    padded = -(-channels // LANES) * LANES
    gradient, biases = Blocked(channels, x.shape[1:]), np.full(padded + LANES, 5, np.float32)
    run(name, Blocked.of(x), gradient, Planar(t), Planar(weight), biases=biases)
    expected = np.zeros(padded)
    expected[:channels] = np.float64(gradient.planar()).sum((1, 2, 3))
    np.testing.assert_allclose(biases[:padded], expected, rtol=1e-5, atol=1e-6)
    assert (biases[padded:] == 5).all()


@pytest.mark.parametrize("lanes", [1, LANES])
@pytest.mark.parametrize("relu_slope", [0.0, 0.25])
@pytest.mark.parametrize("name", ["square", "binomial_cross_entropy", "focal"])
def test_gradient_of_a_relu_is_applied(name: str, relu_slope: float, lanes: int) -> None:
    channels, width = LANES + 3, 21
    x, t, weight = made(name, channels, width)
    x[0, 0, 0, :5] = [0.0, -0.0, 1e-30, -np.inf, np.nan]
    output, plain, gradient = (Blocked(channels, x.shape[1:], lanes=lanes) for _ in range(3))
    output.view[..., 0] = x if lanes == 1 else 0
    output = output if lanes == 1 else Blocked.of(x, pad=5.0)
    biases = np.zeros(2 * LANES, np.float32)
    given = Planar(t), Planar(weight)
    sums = run(name, output, plain, *given)
    assert same_bits(
        run(name, output, gradient, *given, biases=biases, relu_slope=relu_slope), sums
    )
    with np.errstate(invalid="ignore"):
        low = plain.planar() * np.float32(relu_slope) if relu_slope else np.float32(0)
        expected = np.where(x <= 0, low, plain.planar())
    np.testing.assert_array_equal(gradient.planar(), expected)
    with np.errstate(invalid="ignore"):
        total = np.float64(expected).sum((1, 2, 3))
    np.testing.assert_allclose(biases[:channels], total, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_planar_images_give_what_blocked_ones_give(name: str) -> None:
    x, t, weight = made(name, LANES + 3, 21)
    planar = Blocked(LANES + 3, x.shape[1:], lanes=1)
    planar.view[..., 0] = x
    gradient = Blocked(LANES + 3, x.shape[1:], lanes=1)
    blocked, target, weights = Blocked(LANES + 3, x.shape[1:]), Planar(t), Planar(weight)
    biases = np.zeros((2, 2 * LANES), np.float32)
    found = run(name, planar, gradient, target, weights, biases=biases[0])
    assert same_bits(found, run(name, Blocked.of(x), blocked, target, weights, biases=biases[1]))
    assert same_bits(gradient.view[..., 0], blocked.planar())
    assert same_bits(biases[0], biases[1])
    assert gradient.gaps_intact()


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_targets_and_weights_may_be_elsewhere_at_each_step(name: str, weighted: bool) -> None:
    x, t, weight = made(name, 3, 7)
    output, target, weights = Blocked.of(x), Planar(t), Planar(weight)
    places = np.array([address(target.memory), address(weights.memory) if weighted else 0])
    strides = target.whole("target", 1) | weights.whole("weight", 1)
    offset = strides["target"] - address(target.memory)
    partial = np.zeros(2)
    gradient = dict.fromkeys(("gradient", "gradient_block", "gradient_z", "gradient_y"), 0)
    kernel, _, numbers = CASES[name]
    classes = np.ones(3, np.float32) if name == "softmax" else weights_of(3)
    getattr(losses, f"{kernel}_loss").run(
        **NUMBERS | numbers, classes=classes,
        **output.whole("output", 1), **gradient, **strides | {"target": offset, "weight": offset},
        normaliser=NORMALISER, partial=partial, channels=3, planes=1, rows=3,
        width=7, lanes=LANES, places=places, bias_gradient=0, bias_block=0, relu_slope=1.0,
    )  # fmt: skip
    assert same_bits(partial, run(name, output, None, target, weights if weighted else None, 1, 1))


@pytest.mark.parametrize("name", ["binomial_cross_entropy", "softmax"])
def test_stable_for_large_logits(name: str) -> None:
    x = np.zeros((2, 2, 3, 4), np.float32)
    x[0], x[1] = 500.0, -500.0
    t = np.zeros_like(x)
    t[1] = 1.0
    gradient = Blocked(2, x.shape[1:])
    output = Blocked.of(x)
    found = run(name, output, gradient, Planar(t), None)
    np.testing.assert_allclose(found, [24 * 1000, 48 if name != "softmax" else 24])
    np.testing.assert_allclose(gradient.planar()[0], NORMALISER[0])
    np.testing.assert_allclose(gradient.planar()[1], -NORMALISER[0])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_divergence_is_seen(name: str, value: float) -> None:
    x, t, _ = made(name, 3, 5)
    x[1, 1, 2, 3] = value
    t[1, 1, 2, 3] = 0.0
    gradient = Blocked(3, x.shape[1:])
    output = Blocked.of(x)
    assert not np.isfinite(run(name, output, gradient, Planar(t), None)[0])


def test_sum_partials_adds_in_order() -> None:
    pairs = np.random.default_rng(0).random((7, 2))
    result = np.zeros(3)
    places = {"partials": pairs, "count": 7, "target": result}
    sum_partials.run(**places, normaliser=0)
    assert same_bits(result[:2], np.array([sum(pairs[:, 0]), sum(pairs[:, 1])]))
    sum_partials.run(**places, normaliser=NORMALISER)
    assert same_bits(result[:2], np.array([sum(pairs[:, 0]), sum(pairs[:, 1])]) * NORMALISER)
    assert result[2] == 0
