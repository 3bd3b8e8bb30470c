"""Neighbours with different labels, by NumPy's comparisons of shifted arrays."""

from __future__ import annotations

import numpy as np
import pytest
from znnpy_kernels.data.interfaces import mark_interfaces


@pytest.mark.parametrize("kind", ["u1", "i2", "u4", "i8"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 2, 1), (3, 1, 2), (4, 5, 40)])
@pytest.mark.parametrize("share", [0.7, 1.1])
def test_both_of_two_unequal_neighbours_are_marked(
    kind: str, shape: tuple[int, int, int], share: float
) -> None:
    random = np.random.default_rng(0)
    # Values that differ in their highest bits alone, too.
    ids = (random.integers(0, 3, shape) << (8 * np.dtype(kind).itemsize - 2)).astype(kind)
    known = random.random(shape) < share
    wanted = np.zeros(shape, np.bool_)
    for axis in range(3):
        one, other = ([slice(None)] * 3 for _ in range(2))
        one[axis], other[axis] = slice(1, None), slice(None, -1)
        here, there = tuple(one), tuple(other)
        differ = (ids[here] != ids[there]) & known[here] & known[there]
        wanted[here] |= differ
        wanted[there] |= differ
    found = np.ones(shape, np.bool_)
    mark_interfaces.run(found, ids, ids.itemsize, known, *shape)
    np.testing.assert_array_equal(found, wanted)
