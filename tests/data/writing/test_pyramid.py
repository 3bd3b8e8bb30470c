"""Coarser levels: how many there are, and their values beside plain means."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from znnpy.data.writing.pyramid import ENOUGH, coarser, levels_of


def test_voxels_become_cubes_first() -> None:
    found = levels_of((2, 200, 1000, 1100), (40.0, 4.0, 4.0))
    assert [level.factors for level in found] == [(1, 1, 1), (1, 2, 2), (1, 4, 4), (1, 8, 8)]
    assert found[-1].shape == (2, 200, 125, 138)
    assert found[-1].resolution((40.0, 4.0, 4.0)) == (40, 32, 32)


def test_small_images_have_one_level() -> None:
    assert [level.shape for level in levels_of((1, ENOUGH, 5, ENOUGH), (1, 1, 1))] == [
        (1, ENOUGH, 5, ENOUGH)
    ]


@pytest.mark.parametrize(
    "shape", [(1, 1, 5000, 3), (3, 257, 1, 1), (1, 600, 600, 600), (1, 3000, 2, 9)]
)
@pytest.mark.parametrize("size", [(1, 1, 1), (1000, 1, 1), (1, 7, 300)])
def test_levels_end(shape: Any, size: Any) -> None:
    found = levels_of(shape, size)
    assert max(found[-1].shape[1:]) <= ENOUGH
    assert all(max(level.shape[1:]) > ENOUGH for level in found[:-1])
    for before, level in itertools.pairwise(found):
        shrunk = [-(-n // s) for n, s in zip(before.shape[1:], level.step, strict=True)]
        assert [*level.shape[1:]] == shrunk
        assert max(level.step) == 2


@pytest.mark.parametrize("dtype", ["u1", "i2", "u4", "f4", "f8"])
@pytest.mark.parametrize("shape", [(2, 4, 6, 8), (1, 5, 7, 3), (1, 1, 3, 1)])
@pytest.mark.parametrize("step", [(2, 2, 2), (1, 2, 2), (2, 1, 1)])
def test_means_and_single_voxels(dtype: str, shape: Any, step: Any) -> None:
    array = np.random.default_rng(0).integers(0, 250, shape).astype(dtype)
    wanted = [
        [
            [
                [
                    channel[z : z + step[0], y : y + step[1], x : x + step[2]].mean(dtype="f8")
                    for x in range(0, shape[3], step[2])
                ]
                for y in range(0, shape[2], step[1])
            ]
            for z in range(0, shape[1], step[0])
        ]
        for channel in array
    ]
    found = coarser(array, step, labels=False)
    assert found.dtype == array.dtype
    if dtype[0] == "f":
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    else:
        np.testing.assert_array_equal(found, np.rint(wanted))
    single = coarser(array, step, labels=True)
    assert single.shape == found.shape
    np.testing.assert_array_equal(single, array[:, :: step[0], :: step[1], :: step[2]])


def test_an_axis_waits_until_others_are_half_as_fine() -> None:
    found = levels_of((1, 600, 600, 600), (8.0, 4.0, 4.0))
    assert [level.factors for level in found] == [(1, 1, 1), (1, 2, 2), (2, 4, 4), (4, 8, 8)]
