"""A moving average against its definition in NumPy float64."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from blocked_images import normal, same_bits
from znnpy_kernels.layers.moving_averages import moving_average
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES


def moved(values: Any, average: Any, share: float, cuts: list[int]) -> None:
    for begin, end in itertools.pairwise(cuts):
        moving_average.run(
            values=address(values) + 4 * begin, average=address(average) + 4 * begin,
            share=np.array([share]), length=end - begin,
        )  # fmt: skip


@pytest.mark.parametrize("length", [1, LANES - 1, LANES, 5 * LANES + 3])
def test_it_moves_by_its_share(length: int) -> None:
    average, exact = np.zeros(length + 1, np.float32), np.zeros(length)
    for step, share in enumerate((1.0, 0.5, 0.01)):
        values = normal(step, length)
        before = values.copy()
        moved(values, average, share, [0, length])
        exact += share * (np.float64(values) - exact)
        assert same_bits(values, before)
    np.testing.assert_allclose(average[:-1], exact, rtol=1e-6, atol=1e-6)
    assert average[-1] == 0


def test_it_begins_with_the_values_and_may_be_cut_anywhere() -> None:
    values, whole = normal(1, 101), np.zeros(101, np.float32)
    moved(values, whole, 1.0, [0, 101])
    assert same_bits(whole, values)
    cut, after = whole.copy(), normal(2, 101)
    moved(after, whole, 0.3, [0, 101])
    moved(after, cut, 0.3, [0, 7, 50, 101])
    assert same_bits(whole, cut)
