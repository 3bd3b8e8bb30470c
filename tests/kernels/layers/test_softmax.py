"""Softmax over channels, forward and backward, against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from blocked_images import Blocked, normal, same_bits
from znnpy_kernels.layers.softmax import softmax_backward, softmax_forward
from znnpy_kernels.simd.lanes import LANES

SIZES = [(1, 5), (3, LANES + 4), (LANES, 1), (LANES + 1, 2 * LANES), (33, 3)]


def exact_softmax(x: Any) -> Any:
    e = np.exp(np.float64(x) - np.float64(x).max(0))
    return e / e.sum(0)


def padded(values: Any, fill: float) -> Any:
    whole = np.full(-(-values.size // LANES) * LANES, fill, np.float32)
    whole[: values.size] = values
    return whole


def forward(source: Blocked, target: Blocked, bias: Any) -> None:
    for z in range(source.shape[0]):
        softmax_forward.run(
            **source.whole("source", z), **target.whole("target", z), planes=1,
            bias=0 if bias is None else bias, channels=source.channels,
            rows=source.shape[1], width=source.shape[2],
        )  # fmt: skip


@pytest.mark.parametrize(("channels", "width"), SIZES)
def test_forward(channels: int, width: int) -> None:
    x, bias = normal(1, channels, 2, 3, width, scale=20.0), normal(2, channels)
    source, target = Blocked.of(x), Blocked(channels, x.shape[1:])
    forward(source, target, padded(bias, 50.0))
    exact = exact_softmax(np.float64(x + bias[:, None, None, None]))
    np.testing.assert_allclose(target.planar(), exact, rtol=1e-5, atol=1e-37)
    assert not target.pad().any()
    assert target.gaps_intact()
    forward(source, target, None)
    np.testing.assert_allclose(target.planar(), exact_softmax(x), rtol=1e-5, atol=1e-37)
    forward(source, source, None)
    assert same_bits(source.view, target.view)


def test_stable_for_large_values() -> None:
    x = np.zeros((3, 1, 1, 5), np.float32)
    x[0], x[1] = 500.0, -500.0
    source = Blocked.of(x)
    forward(source, source, None)
    np.testing.assert_array_equal(source.planar()[:, 0, 0, 0], np.float32([1, 0, 0]))


def test_nan_stays_in_its_voxel() -> None:
    x = normal(1, 4, 1, 1, 6)
    x[2, 0, 0, 3] = np.nan
    source = Blocked.of(x)
    forward(source, source, None)
    assert np.isnan(source.planar()[:, 0, 0, 3]).all()
    assert not np.isnan(np.delete(source.planar(), 3, axis=3)).any()


@pytest.mark.parametrize(("channels", "width"), SIZES)
def test_backward(channels: int, width: int) -> None:
    y = exact_softmax(normal(1, channels, 2, 3, width)).astype(np.float32)
    g = normal(2, *y.shape)
    output, gradient, target = Blocked.of(y), Blocked.of(g), Blocked(channels, y.shape[1:], gap=3)
    for written in (target, gradient):  # last in place
        softmax_backward.run(
            **output.whole("output"), **gradient.whole("gradient"), **written.whole("target"),
            channels=channels, planes=2, rows=3, width=width,
        )  # fmt: skip
        exact = np.float64(y) * (g - (np.float64(y) * g).sum(0))
        np.testing.assert_allclose(written.planar(), exact, rtol=1e-5, atol=1e-6)
        assert not written.pad().any()
        assert written.gaps_intact()
