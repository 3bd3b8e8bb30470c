"""Regions that leave the volume are padded and marked."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from znnpy.data.sampling.label_masks import read_labelled, read_padded
from znnpy.data.volume import ArrayVolume

CORNERS = st.tuples(*[st.integers(-6, 8)] * 3)
SIZES = st.tuples(*[st.integers(1, 9)] * 3)


@given(CORNERS, SIZES)
def test_padded_like_numpy(lower: tuple[int, int, int], sizes: tuple[int, int, int]) -> None:
    array = np.arange(1, 2 * 3 * 4 * 5 + 1).reshape(2, 3, 4, 5)
    upper = tuple(a + n for a, n in zip(lower, sizes, strict=True))
    values, inside = read_padded(ArrayVolume(array), lower, upper)  # type: ignore[arg-type]
    wide = np.pad(array, [(0, 0), (20, 20), (20, 20), (20, 20)])
    z, y, x = (slice(a + 20, b + 20) for a, b in zip(lower, upper, strict=True))
    assert np.array_equal(values, wide[:, z, y, x])
    assert np.array_equal(inside, values[0] > 0)


def test_mask_of_two_channels_that_lies_elsewhere() -> None:
    labels = ArrayVolume(np.arange(1, 5).reshape(1, 1, 4))
    mask = ArrayVolume(np.array([[1, 1, 0], [5, 0, 1]]).reshape(2, 1, 1, 3))
    values, known = read_labelled(labels, mask, (0, 0, 0), (1, 1, 4), (0, 0, -1))
    assert values.ravel().tolist() == [1, 2, 3, 4]
    assert known.ravel().tolist() == [False, True, False, False]
