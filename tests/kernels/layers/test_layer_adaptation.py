"""LAMB's and LARS's kernels against the definition in NumPy float64; cut into ranges, padded, and where a norm is 0."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from blocked_images import normal, same_bits
from znnpy_kernels.layers.layer_adaptation import lamb, lamb_norms, lars, lars_norms
from znnpy_kernels.layers.optimizers import ADAM_HYPER
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES

RATE, DECAY, EPS = 0.02, 0.1, 1e-6


def block(update: int, decay: float = DECAY) -> Any:
    values = dict(zip(ADAM_HYPER, (RATE, decay, 0.9, 0.99, EPS, 0.0), strict=False))
    values |= {"correction1": 1 - 0.9**update, "correction2": 1 - 0.99**update}
    return np.array([values[name] for name in ADAM_HYPER])


def run(
    arrays: list[Any], numbers: Any, cuts: list[int], *, adapt: bool = True, scale: Any = None
) -> Any:
    """Update parameters in place, given them, their gradient and both moments; the sums of each range."""
    names = ("parameters", "gradient", "mean", "variance")
    partials = np.full((len(cuts) - 1, 2), np.nan)
    parts = [
        {name: address(it) + 4 * begin for name, it in zip(names, arrays, strict=True)}
        | {"hyper": numbers, "scale": 0 if scale is None else scale, "length": end - begin}
        for begin, end in itertools.pairwise(cuts)
    ]
    for number, part in enumerate(parts):
        lamb_norms.run(**part, partial=partials[number])
    for part in reversed(parts):  # in any order
        lamb.run(**part, partials=partials, count=len(parts) if adapt else 0)
    return partials


@pytest.mark.parametrize("length", [1, LANES - 1, LANES, 5 * LANES + 3])
@pytest.mark.parametrize("adapt", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
def test_lamb(length: int, adapt: bool, scaled: bool) -> None:
    p, m, v = normal(1, length + 1), *np.zeros((2, length + 1), np.float32)
    end, x, mean, variance = p[-1], np.float64(p[:-1]), np.zeros(length), np.zeros(length)
    scale = np.array([0.5], np.float32) if scaled else None
    for update in range(1, 5):
        g = normal(10 + update, length)
        run([p, g, m, v], block(update), sorted({0, length // 2, length}), adapt=adapt, scale=scale)
        d = np.float64(g) * (0.5 if scaled else 1.0)
        mean = 0.9 * mean + 0.1 * d
        variance = 0.99 * variance + 0.01 * d**2
        root = np.sqrt(variance / (1 - 0.99**update)) + EPS
        step = mean / (1 - 0.9**update) / root + DECAY * x
        ratio = np.linalg.norm(x) / np.linalg.norm(step) if adapt else 1.0
        x = x - RATE * ratio * step
    np.testing.assert_allclose(p[:-1], x, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(m[:-1], mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(v[:-1], variance, rtol=1e-5, atol=1e-6)
    assert (p[-1], m[-1], v[-1]) == (end, 0, 0)


def test_norms_are_those_of_float64_and_padding_adds_nothing() -> None:
    p, g = normal(3, 64 * LANES), normal(4, 64 * LANES)
    p[LANES:] = g[LANES:] = 0
    m, v = np.zeros((2, len(p)), np.float32)
    kept = p.copy()
    sums = run([p, g, m, v], block(1), [0, 7 * LANES, len(p)])
    np.testing.assert_allclose(sums[0, 0], (np.float64(kept) ** 2).sum(), rtol=1e-12)
    assert (sums[1] == 0).all()
    assert not p[LANES:].any()
    assert not m[LANES:].any()
    assert not v[LANES:].any()
    # A step with a ratio is as long as the rate says, whatever the gradient was.
    moved = np.linalg.norm(np.float64(p) - kept) / np.linalg.norm(np.float64(kept))
    assert moved == pytest.approx(RATE, rel=1e-5)


def test_filters_or_steps_of_zeros_move_by_the_step_alone() -> None:
    p, m, v = np.zeros((3, 2 * LANES), np.float32)
    g = normal(5, 2 * LANES)
    run([p, g, m, v], block(1), [0, 2 * LANES])
    np.testing.assert_allclose(p, -RATE * np.sign(g), rtol=1e-3)
    p, m, v = normal(6, LANES), *np.zeros((2, LANES), np.float32)
    kept = p.copy()
    run([p, np.zeros(LANES, np.float32), m, v], block(1, decay=0.0), [0, LANES])
    assert same_bits(p, kept)


def test_what_is_not_finite_reaches_the_parameters() -> None:
    p, m, v = normal(7, LANES), *np.zeros((2, LANES), np.float32)
    g = normal(8, LANES)
    g[3] = np.nan
    run([p, g, m, v], block(1), [0, LANES])
    assert np.isnan(p).any()


def lars_run(
    arrays: list[Any], numbers: Any, cuts: list[int], *, adapt: bool = True, scale: Any = 0
) -> None:
    names = ("parameters", "gradient", "momentum")
    partials = np.full((len(cuts) - 1, 2), np.nan)
    parts = [
        {name: it is not None and address(it) + 4 * begin for name, it in zip(names, arrays, strict=True)}
        | {"hyper": numbers, "scale": scale, "length": end - begin}
        for begin, end in itertools.pairwise(cuts)
    ]  # fmt: skip
    for number, part in enumerate(parts):
        lars_norms.run(**part, partial=partials[number])
    for part in reversed(parts):  # in any order
        lars.run(**part, partials=partials, count=len(parts) if adapt else 0)


@pytest.mark.parametrize("length", [1, LANES - 1, LANES, 5 * LANES + 3])
@pytest.mark.parametrize("adapt", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_lars(length: int, adapt: bool, momentum: float, factor: float) -> None:
    p, m = normal(1, length + 1), np.zeros(length + 1, np.float32)
    end, x, velocity = p[-1], np.float64(p[:-1]), np.zeros(length)
    scale = 0 if factor == 1 else np.array([factor], np.float32)
    numbers, state = np.array([RATE, DECAY, momentum, 0.05]), m if momentum else None
    for update in range(4):
        g = normal(10 + update, length)
        cuts = sorted({0, length // 2, length})
        lars_run([p, g, state], numbers, cuts, adapt=adapt, scale=scale)
        d, size = np.float64(g) * factor, np.linalg.norm(x)
        ratio = 0.05 * size / (np.linalg.norm(d) + DECAY * size) if adapt else 1.0
        velocity = momentum * velocity + ratio * (d + DECAY * x)
        x = x - RATE * velocity
    np.testing.assert_allclose(p[:-1], x, rtol=1e-5, atol=1e-6)
    if momentum:
        np.testing.assert_allclose(m[:-1], velocity, rtol=1e-5, atol=1e-6)
    assert (p[-1], m[-1]) == (end, 0)


def test_lars_of_zeros_and_of_what_is_not_finite() -> None:
    numbers = np.array([RATE, 0.0, 0.9, 0.05])
    p, m = np.zeros((2, 2 * LANES), np.float32)
    g = normal(5, 2 * LANES)
    lars_run([p, g, m], numbers, [0, 2 * LANES])
    np.testing.assert_allclose(p, -RATE * g, rtol=1e-5)
    kept = p.copy()
    lars_run([p, np.zeros_like(g), np.zeros_like(g)], numbers, [0, LANES, 2 * LANES])
    assert same_bits(p, kept)
    g[3] = np.nan
    lars_run([p, g, m], numbers, [0, 2 * LANES])
    assert np.isnan(p).any()
