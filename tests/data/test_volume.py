"""Regions, slabs and mirrored borders."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from znnpy.data.volume import ArrayVolume, mirror_read, neighbours_of, slabs
from znnpy.errors import VolumeError

SIZES = st.tuples(*[st.integers(1, 6)] * 3)
PADS = st.tuples(*[st.integers(0, 15)] * 6)


@given(SIZES, PADS)
def test_mirror_is_numpy_reflect(sizes: tuple[int, int, int], pads: tuple[int, ...]) -> None:
    array = np.arange(2 * np.prod(sizes)).reshape(2, *sizes)
    before, after = pads[:3], pads[3:]
    mode = [(0, 0), *zip(before, after, strict=True)]
    expected = np.pad(array, mode, mode="reflect")
    lower = tuple(-b for b in before)
    upper = tuple(n + a for n, a in zip(sizes, after, strict=True))
    got = mirror_read(ArrayVolume(array), lower, upper)  # type: ignore[arg-type]
    assert np.array_equal(got, expected)


def test_mirror_far_outside() -> None:
    volume = ArrayVolume(np.arange(5).reshape(1, 1, 5))
    assert mirror_read(volume, (0, 0, 9), (1, 1, 12)).ravel().tolist() == [1, 2, 3]
    assert mirror_read(volume, (0, 0, -3), (1, 1, -1)).ravel().tolist() == [3, 2]


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        ((0, 0, 0), (2, 3, 5)),
        ((-1, 0, 0), (1, 1, 1)),
        ((1, 1, 1), (1, 2, 2)),
        ((2, 0, 0), (1, 1, 1)),
    ],
)
def test_region_outside(lower: tuple[int, int, int], upper: tuple[int, int, int]) -> None:
    with pytest.raises(VolumeError, match=r"array: the region.*\(2, 3, 4\)"):
        ArrayVolume(np.zeros((2, 3, 4))).read(lower, upper)


def test_empty_mirror_region() -> None:
    with pytest.raises(VolumeError, match="empty"):
        mirror_read(ArrayVolume(np.zeros((2, 3, 4))), (0, 0, 0), (1, 0, 1))


def test_array_volume_is_read_only_and_leaves_the_given_array_alone() -> None:
    array = np.zeros((1, 2, 3, 4))
    volume = ArrayVolume(array)
    with pytest.raises(ValueError, match="read-only"):
        volume.read_all()[...] = 1
    array[...] = 2
    assert volume.read_all().min() == 2


@pytest.mark.parametrize("shape", [(4,), (3, 4), (1, 1, 2, 3, 4)])
def test_array_volume_of_wrong_axes(shape: tuple[int, ...]) -> None:
    with pytest.raises(VolumeError, match="axes"):
        ArrayVolume(np.zeros(shape))


def test_array_volume_refuses_nan() -> None:
    array = np.zeros((2, 3, 4))
    array[1, 0, 2] = np.nan
    with pytest.raises(VolumeError, match=r"\(1, 0, 2\)"):
        ArrayVolume(array).read_all()
    assert np.isnan(ArrayVolume(array).read((1, 0, 0), (2, 3, 4), finite=False)).sum() == 1


@given(st.integers(1, 40), st.integers(1, 2000))
def test_slabs_cover_the_depth(depth: int, size: int) -> None:
    volume = ArrayVolume(np.zeros((depth, 5, 7), np.uint8))
    ranges = list(slabs(volume, size))
    assert [z for a, b in ranges for z in range(a, b)] == list(range(depth))
    assert all((b - a) * 35 <= max(35, size) for a, b in ranges)


def test_neighbours_are_three_whole_numbers_a_channel() -> None:
    assert neighbours_of([[-1, 0, 0], [0, 0, 9]], 2) == ((-1, 0, 0), (0, 0, 9))
    assert neighbours_of(np.array([[0, -1, 0]], np.int8), 1) == ((0, -1, 0),)
    for other in (
        None,
        0,
        "text",
        [[1, 0, 0]],
        [[1, 0], [0]],
        [[0.5, 0, 0]] * 2,
        {},
        [[2**70] * 3] * 2,
    ):
        assert neighbours_of(other, 2) is None
