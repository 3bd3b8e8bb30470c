"""Networks of short transforms against NumPy, and their cost."""

from __future__ import annotations

import numpy as np
import pytest
from znnpy_kernels.fft.codelet_networks import (
    INPUT,
    SUM,
    Network,
    complex_network,
    hermitian_network,
    operations,
    real_network,
)
from znnpy_kernels.fft.codelets import SIZES


def evaluate(net: Network, inputs: np.ndarray) -> np.ndarray:
    """All outputs in float64."""
    values: list[float] = []
    for node in net.nodes:
        if node.kind == INPUT:
            values.append(inputs[node.left])
        elif node.kind == SUM:
            values.append(values[node.left] + node.constant * values[node.right])
        else:
            values.append(node.constant * values[node.left])
    return np.array([0.0 if out is None else out[0] * values[out[1].number] for out in net.outputs])


def line(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, 2)).view(complex)[:, 0]


def parts(values: np.ndarray) -> np.ndarray:
    return np.stack([values.real, values.imag], 1).ravel()


def joined(values: np.ndarray) -> np.ndarray:
    return values[0::2] + 1j * values[1::2]


@pytest.mark.quick(8)
@pytest.mark.parametrize("n", [*SIZES, 2, 3, 4, 5, 7, 9, 15, 36, 63, 64])
def test_networks_are_fourier_transforms(n: int) -> None:
    x = line(n)
    np.testing.assert_allclose(
        joined(evaluate(complex_network(n, n, n), parts(x))), np.fft.fft(x), atol=1e-12
    )
    half = np.fft.rfft(x.real)
    np.testing.assert_allclose(joined(evaluate(real_network(n), x.real)), half, atol=1e-12)
    back = evaluate(hermitian_network(n), parts(half)) * min(n, 2)
    np.testing.assert_allclose(back, n * x.real, atol=1e-12)


@pytest.mark.parametrize(
    ("n", "known"), [(8, (52, 4)), (12, (96, 16)), (16, (144, 24)), (32, (372, 84))]
)
def test_networks_are_as_short_as_known_ones(n: int, known: tuple[int, int]) -> None:
    """Additions and multiplications of split radix and of Good's mapping, halved for real lines."""
    assert operations(complex_network(n, n, n)) == known
    additions, multiplications = operations(real_network(n))
    assert additions < known[0] / 2
    assert multiplications <= known[1] / 2


@pytest.mark.parametrize("n", SIZES[1:])
def test_short_lines_cost_less(n: int) -> None:
    x = line(n)
    x[3:] = 0
    few = complex_network(n, 3, 4)
    np.testing.assert_allclose(joined(evaluate(few, parts(x[:3]))), np.fft.fft(x)[:4], atol=1e-12)
    assert operations(complex_network(n, 4, n))[0] < operations(complex_network(n, n, n))[0]
    assert operations(complex_network(n, n, 4))[0] < operations(complex_network(n, n, n))[0]
