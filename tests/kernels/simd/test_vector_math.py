"""The vectorised functions against NumPy in float64, in units in the last place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from znnpy_kernels.machine.abi import Kernel, kernel, words
from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd import vector_math
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.simd.vectors import load, store


@inlined
def _map(args: Any, function: Any) -> None:
    for i in range(0, 4 * args[2], 4 * LANES):
        store(args[1] + i, function(load(args[0] + i)))


AT = words("source target length")


@kernel(AT)
def map_exp(args: Any, worker: int) -> None:
    _map(args, vector_math.exp)


@kernel(AT)
def map_expm1(args: Any, worker: int) -> None:
    _map(args, vector_math.expm1)


@kernel(AT)
def map_tanh(args: Any, worker: int) -> None:
    _map(args, vector_math.tanh)


@kernel(AT)
def map_logistic(args: Any, worker: int) -> None:
    _map(args, vector_math.logistic)


@kernel(AT)
def map_softplus(args: Any, worker: int) -> None:
    _map(args, vector_math.softplus)


@kernel(AT)
def map_log(args: Any, worker: int) -> None:
    _map(args, vector_math.log)


@kernel(AT)
def map_log1p(args: Any, worker: int) -> None:
    _map(args, vector_math.log1p)


def mapped(function: Kernel, x: Any) -> Any:
    x = np.asarray(x, np.float32)
    padded = np.resize(x, -(-x.size // LANES) * LANES)
    y = np.empty_like(padded)
    function.run(source=padded, target=y, length=y.size)
    return y[: x.size]


def ulps(found: Any, exact: Any) -> float:
    return float(np.max(np.abs(found - exact) / np.spacing(np.abs(exact).astype(np.float32))))


def softplus(x: Any) -> Any:
    return np.logaddexp(x, 0)


SPREAD = np.concatenate([s * np.logspace(-7, 1.9, 20000) for s in (-1, 1)]).astype(np.float32)


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    ("function", "exact", "x", "limit"),
    [
        (map_exp, np.exp, np.linspace(-87, 88.7, 40001), 2.0),
        (map_expm1, np.expm1, SPREAD[SPREAD < 0], 3.0),
        (map_tanh, np.tanh, SPREAD, 4.0),
        (map_logistic, expit, np.linspace(-87, 80, 40001), 3.0),
        (map_logistic, expit, SPREAD, 3.0),
        (map_softplus, softplus, np.linspace(-87, 200, 40001), 4.0),
        (map_softplus, softplus, SPREAD, 4.0),
        (map_log, np.log, np.logspace(-37, 38, 40001), 3.0),
        (map_log, np.log, np.linspace(0.5, 2.0, 40000), 3.0),
        (map_log1p, np.log1p, np.concatenate([np.logspace(-30, 0, 9999), [0, 1]]), 3.0),
    ],
)
def test_accuracy(function: Kernel, exact: Any, x: Any, limit: float) -> None:
    x = x.astype(np.float32)
    assert ulps(mapped(function, x), exact(x.astype(np.float64))) < limit


def test_limits_and_nan() -> None:
    ends = [-np.inf, -1e30, 0.0, 1e30, np.inf, np.nan]
    expected = {
        map_exp: [0, 0, 1, np.inf, np.inf, np.nan],
        map_tanh: [-1, -1, 0, 1, 1, np.nan],
        map_logistic: [0, 0, 0.5, 1, 1, np.nan],
        map_softplus: [0, 0, np.log(2), 1e30, np.inf, np.nan],
    }
    for function, values in expected.items():
        np.testing.assert_array_equal(mapped(function, ends), np.float32(values))
    np.testing.assert_array_equal(
        mapped(map_expm1, [-np.inf, -1e30, 0, np.nan]), np.float32([-1, -1, 0, np.nan])
    )
    np.testing.assert_array_equal(mapped(map_log, [1.0, np.nan]), np.float32([0, np.nan]))
