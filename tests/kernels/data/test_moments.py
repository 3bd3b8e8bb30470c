"""Sums of integers against NumPy's of int64."""

from __future__ import annotations

import numpy as np
import pytest
from znnpy_kernels.data.moments import RUN, byte_sums, short_sums

SUMS = {np.uint8: byte_sums, np.uint16: short_sums}


@pytest.mark.parametrize("kind", SUMS)
@pytest.mark.parametrize("length", [0, 1, 15, 100, RUN - 1, RUN, 3 * RUN + 17])
@pytest.mark.parametrize("least", [0, 0.99])
def test_sums_are_exact_and_added(kind: type, length: int, least: float) -> None:
    top = np.iinfo(kind).max
    values = np.random.default_rng(0).integers(int(least * top), top, length, kind, endpoint=True)
    found = np.array([5, 7], np.int64)
    SUMS[kind].run(values, length, found)
    wide = values.astype(np.int64)
    assert found.tolist() == [5 + wide.sum(), 7 + (wide * wide).sum()]


@pytest.mark.parametrize("kind", SUMS)
def test_the_largest_values_do_not_run_over(kind: type) -> None:
    values = np.full(2 * RUN, np.iinfo(kind).max, kind)
    found = np.zeros(2, np.int64)
    SUMS[kind].run(values, values.size, found)
    top = int(np.iinfo(kind).max)
    assert found.tolist() == [2 * RUN * top, 2 * RUN * top**2]
