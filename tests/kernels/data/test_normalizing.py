"""Normalised voxels, bit by bit those of NumPy, whatever way they lie."""

from __future__ import annotations

import numpy as np
import pytest

from znnpy.data.values.scaling import Normalisation


@pytest.mark.parametrize("kind", ["u1", "u2", "f4"])
@pytest.mark.parametrize("turn", [(1, 1, 1), (-1, 1, -1), (1, -1, 1), (2, 1, 3)])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3), (0, 3, 2, 1)])
def test_voxels_are_those_of_numpy(
    kind: str, turn: tuple[int, int, int], order: tuple[int, ...]
) -> None:
    array = np.random.default_rng(0).uniform(0, 250, (2, 7, 8, 41)).astype(kind)
    seen = array.transpose(order)[:, :: turn[0], :: turn[1], :: turn[2]]
    numbers = np.array([100.3, -7.7]), np.array([0.021, 3.3])
    room = np.full((2, *(n + 2 for n in seen.shape[1:])), 5, np.float32)
    found = room[:, 1:-1, 1:-1, 1:-1]
    assert Normalisation(*numbers).apply(seen, found) is found
    shift, scale = (it.astype(np.float32).reshape(2, 1, 1, 1) for it in numbers)
    np.testing.assert_array_equal(found, (seen.astype(np.float32) - shift) * scale)
    found[...] = 5
    assert (room == 5).all()  # nothing is written beside it
