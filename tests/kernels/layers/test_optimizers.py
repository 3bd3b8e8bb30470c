"""SGD and Adam against the definitions in NumPy float64."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from blocked_images import normal, same_bits
from znnpy_kernels.layers.optimizers import ADAM_HYPER, SGD_HYPER, adam, sgd
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES

LENGTHS = [1, LANES - 1, LANES, 5 * LANES + 3]


def hyper(names: tuple[str, ...] = SGD_HYPER, **values: float) -> Any:
    assert set(values) <= set(names)
    return np.array([values.get(name, 0.0) for name in names])


def run_sgd(p: Any, g: Any, m: Any, block: Any, scale: Any, cuts: list[int]) -> None:
    for begin, end in itertools.pairwise(cuts):
        sgd.run(
            parameters=address(p) + 4 * begin, gradient=address(g) + 4 * begin,
            momentum=0 if m is None else address(m) + 4 * begin, hyper=block,
            scale=0 if scale is None else scale, length=end - begin,
        )  # fmt: skip


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(
    ("momentum", "nesterov", "decay", "scaled"),
    [(0.9, 0, 0.01, True), (0.9, 1, 0.01, False), (0.0, 0, 0.0, False)],
)
def test_sgd(length: int, momentum: float, nesterov: int, decay: float, scaled: bool) -> None:
    p, m = normal(1, length + 1), np.zeros(length + 1, np.float32)
    end, exact_p, exact_m = p[-1], np.float64(p[:-1]), np.zeros(length)
    scale = np.array([0.25], np.float32) if scaled else None
    for step in range(3):
        g = normal(10 + step, length)
        block = hyper(learning_rate=0.1 / (step + 1), momentum=momentum, nesterov=nesterov,
                      weight_decay=decay)  # fmt: skip
        run_sgd(p, g, m, block, scale, [0, length])
        d = (0.25 if scaled else 1.0) * g + decay * exact_p
        exact_m = momentum * exact_m + d
        exact_p = exact_p - 0.1 / (step + 1) * (d + momentum * exact_m if nesterov else exact_m)
    np.testing.assert_allclose(p[:-1], exact_p, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(m[:-1], exact_m, rtol=1e-6, atol=1e-6)
    assert p[-1] == end
    assert m[-1] == 0


def test_sgd_without_state_and_in_parts() -> None:
    p, g = normal(1, 101), normal(2, 101)
    block = hyper(learning_rate=0.1, weight_decay=0.01)
    cut, whole, state = p.copy(), p.copy(), np.zeros(101, np.float32)
    run_sgd(cut, g, None, block, None, [0, 7, 50, 101])
    run_sgd(whole, g, state, block, None, [0, 101])
    assert same_bits(cut, whole)
    np.testing.assert_allclose(cut, p - 0.1 * (g + 0.01 * p), rtol=1e-6, atol=1e-7)


def run_adam(p: Any, g: Any, m: Any, v: Any, block: Any, scale: Any, cuts: list[int]) -> None:
    for begin, end in itertools.pairwise(cuts):
        adam.run(
            parameters=address(p) + 4 * begin, gradient=address(g) + 4 * begin,
            mean=address(m) + 4 * begin, variance=address(v) + 4 * begin, hyper=block,
            scale=0 if scale is None else scale, length=end - begin,
        )  # fmt: skip


def adam_block(step: int, decoupled: int, decay: float) -> Any:
    return hyper(ADAM_HYPER, learning_rate=0.01, beta1=0.9, beta2=0.999, eps=1e-8, decoupled=decoupled,
                 weight_decay=decay, correction1=1 - 0.9**step,
                 correction2=1 - 0.999**step)  # fmt: skip


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("decoupled", [0, 1])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam(length: int, decoupled: int, decay: float) -> None:
    p, scale = normal(1, length + 1), np.array([0.5], np.float32)
    m, v = np.zeros_like(p), np.zeros_like(p)
    end, x, mean, variance = p[-1], np.float64(p[:-1]), np.zeros(length), np.zeros(length)
    for step in range(1, 5):
        g = normal(10 + step, length)
        run_adam(p, g, m, v, adam_block(step, decoupled, decay), scale, [0, length])
        d = 0.5 * np.float64(g) + (0 if decoupled else decay) * x
        x = x * (1 - 0.01 * decay) if decoupled else x
        mean, variance = 0.9 * mean + 0.1 * d, 0.999 * variance + 0.001 * d * d
        root = np.sqrt(variance / (1 - 0.999**step)) + 1e-8
        x = x - 0.01 * (mean / (1 - 0.9**step)) / root
    np.testing.assert_allclose(p[:-1], x, rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(m[:-1], mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(v[:-1], variance, rtol=1e-5)
    assert p[-1] == end
    assert m[-1] == 0


def test_adam_in_parts_and_nan() -> None:
    p, g = normal(1, 101), normal(2, 101)
    g[3] = np.nan
    states = [np.zeros(101, np.float32) for _ in range(4)]
    whole, cut, block = p.copy(), p.copy(), adam_block(1, 0, 0.1)
    run_adam(whole, g, *states[:2], block, None, [0, 101])
    run_adam(cut, g, *states[2:], block, None, [0, 16, 33, 101])
    assert same_bits(whole, cut)
    assert np.flatnonzero(np.isnan(whole)).tolist() == [3]


def test_pads_stay_zero() -> None:
    p, g = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
    m, v = np.zeros_like(p), np.zeros_like(p)
    run_adam(p, g, m, v, adam_block(1, 0, 0.1), None, [0, LANES])
    run_sgd(p, g, m, hyper(learning_rate=0.1, momentum=0.9, weight_decay=0.1), None, [0, LANES])
    assert not p.any()
