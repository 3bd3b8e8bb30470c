"""Sums of squares, clipping scale, finiteness."""

from __future__ import annotations

import numpy as np
import pytest
from blocked_images import normal
from znnpy_kernels.layers.gradient_norms import all_finite, clip_scale, sum_of_squares
from znnpy_kernels.simd.lanes import LANES

LENGTHS = [0, 1, LANES - 1, LANES, 2 * LANES, 3 * LANES + 1, 1001]


@pytest.mark.parametrize("length", LENGTHS)
def test_sum_of_squares(length: int) -> None:
    x, partial = normal(0, length + LANES), np.full(2, 3.0)
    sum_of_squares.run(source=x, length=length, partial=partial)
    np.testing.assert_allclose(partial[0], (np.float64(x[:length]) ** 2).sum(), rtol=1e-14)
    assert partial[1] == 3.0


@pytest.mark.parametrize("partials", [[9.0, 16.0], [0.01], [0.0], [np.nan, 1.0], [np.inf]])
def test_clip_scale(partials: list[float]) -> None:
    squares = np.array(partials)
    scale, norm = np.zeros(2, np.float32), np.zeros(1)
    places = {"partials": squares, "count": len(partials), "scale": scale}
    places["max_norm"] = np.array([2.0])
    clip_scale.run(**places, norm=norm)
    exact = np.sqrt(squares.sum())
    np.testing.assert_array_equal(norm[0], exact)
    np.testing.assert_allclose(scale[0], np.minimum(1.0, 2.0 / (exact + 1e-6)), rtol=1e-7)
    clip_scale.run(**places, norm=0)
    assert scale[1] == 0


@pytest.mark.parametrize("length", LENGTHS[1:])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_all_finite(length: int, value: float) -> None:
    x, flag = normal(0, length + 1), np.array([5, 5])
    x[0] = np.finfo(np.float32).max
    x[length] = value
    for place, expected in ((length, 1), (0, 0), (length // 2, 0), (length - 1, 0)):
        bad = x.copy()
        bad[place] = value
        all_finite.run(source=bad, length=length, flag=flag)
        assert flag.tolist() == [expected, 5]
