"""Mean 0, deviation 1, and the same whether in memory or read by slab."""

from __future__ import annotations

import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest

from znnpy.data.opening import load, open_volume
from znnpy.data.values import moments
from znnpy.data.values.moments import statistics_slabs
from znnpy.data.values.normalization import (
    Fixed,
    normalisation,
    unlikely,
)
from znnpy.data.values.sampled_range import glance
from znnpy.data.volume import ArrayVolume
from znnpy.errors import VolumeError

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("slab", [1, 500, 1 << 26])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.float32, np.float64])
def test_mean_and_deviation(monkeypatch: pytest.MonkeyPatch, slab: int, dtype: type) -> None:
    monkeypatch.setattr(moments, "SLAB", slab)
    array = RANDOM.integers(0, 200, (2, 11, 5, 6)).astype(dtype)
    array[1] //= 3
    mean, deviation = moments.moments(ArrayVolume(array))
    assert np.allclose(mean, array.mean(axis=(1, 2, 3)))
    assert np.allclose(deviation, array.std(axis=(1, 2, 3)))
    out = normalisation(ArrayVolume(array)).apply(array)
    assert out.dtype == np.float32
    assert np.allclose(out.mean(axis=(1, 2, 3)), 0, atol=1e-5)
    assert np.allclose(out.std(axis=(1, 2, 3)), 1, atol=1e-5)


def test_large_offset_keeps_its_digits() -> None:
    array = RANDOM.normal(1e6, 1, (20, 30, 30))
    assert moments.moments(ArrayVolume(array))[1][0] == pytest.approx(array.std(), rel=1e-9)


@pytest.mark.parametrize(("dtype", "top"), [(np.uint8, 255), (np.uint16, 65535), (np.float32, 1)])
def test_unit(dtype: type, top: int) -> None:
    array = np.array([0, 1, top]).astype(dtype).reshape(1, 1, 1, 3)
    out = normalisation(ArrayVolume(array), "unit").apply(array)
    assert np.allclose(out.ravel(), [0, 1 / top, 1])


def test_none_and_constant() -> None:
    array = np.full((1, 2, 3, 4), 7, np.uint8)
    assert (normalisation(ArrayVolume(array), "none").apply(array) == 7).all()
    assert (normalisation(ArrayVolume(array)).apply(array) == 0).all()


def test_large_volumes_are_judged_by_spread_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments, "SLAB", 60)
    monkeypatch.setattr(moments, "SAMPLED", 5)
    ranges = statistics_slabs(ArrayVolume(np.zeros((101, 5, 6), np.uint8)))
    assert ranges == [(0, 2), (24, 26), (50, 52), (76, 78), (100, 101)]


def test_memory_and_file_agree_bitwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments, "SLAB", 3000)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = RANDOM.normal(size=(23, 10, 11)).astype(np.float32)
        file.create_dataset("raw", data=data, chunks=(4, 4, 4))
    with open_volume(tmp_path / "a.h5") as volume:
        by_file = moments.moments(volume)
        in_memory = moments.moments(load(volume, "memory"))
    assert np.array_equal(by_file, in_memory)


def doubts(values: np.ndarray, mean: tuple[float, ...], deviation: tuple[float, ...]) -> str:
    return unlikely(glance(ArrayVolume(values), finite=False), Fixed(mean, deviation), values.dtype)


def test_fixed_numbers_are_doubted_channel_by_channel():
    values = RANDOM.random((2, 4, 8, 8)).astype(np.float32)
    values[1] *= 255
    assert doubts(values, (0.5, 120.0), (0.2, 50.0)) == ""
    assert "values of channel 1 from" in doubts(values, (0.5,), (0.2,))
    assert "values of channel 0 from" in doubts(values, (120.0,), (50.0,))
    assert "takes values from" in doubts(values[:1], (120.0,), (50.0,))
    values[1] = 120  # a channel that is not used
    assert doubts(values, (0.5, 120.0), (0.2, 50.0)) == ""


@pytest.mark.parametrize(
    ("dtype", "offset", "step"),
    [(np.int64, 10**10, 1), (np.uint32, 2**32 - 1000, 1), (np.float64, 1e9, 0.1)],
)
def test_large_values_that_differ_by_little_keep_their_contrast(dtype, offset, step):
    """float32 alone holds 10^10 and 10^10 + 1 as the same number."""
    small = RANDOM.integers(0, 255, (3, 8, 8))
    volume = ArrayVolume((small * step + offset).astype(dtype))
    found = normalisation(volume).apply(volume.read_all())
    expected = (small - small.mean()) / small.std()
    np.testing.assert_allclose(found[0], expected, atol=1e-5)
    written = np.full(found.shape, np.nan, np.float32)
    normalisation(volume).apply(volume.read_all(), written)
    assert np.array_equal(written, found)


def test_modes_that_look_at_no_values_are_doubted_too():
    """A byte image stored as int64 is all but 0 by `unit`, and a float one of 0..255 stays as it is."""
    values = RANDOM.integers(0, 255, (3, 8, 8))
    for dtype, mode, words in [
        (np.uint8, "unit", ""),
        (np.uint16, "unit", "to 0 to 0.0038"),
        (np.int64, "unit", "unit leaves them there, mean_std does not"),
        (np.float32, "unit", "to 0 to 25"),
        (np.uint8, "none", "none leaves them there"),
        (np.int64, "mean_std", ""),
    ]:
        volume = ArrayVolume(values.astype(dtype), "raw")
        found = unlikely(glance(volume), mode, volume.dtype)
        assert words in found if words else found == ""
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            normalisation(volume, mode)
        assert [str(one.message) for one in warned] == ([f"raw: {found}"] if found else [])


def test_values_that_are_not_finite_are_no_reason_to_doubt():
    values = np.full((2, 4, 8, 8), np.nan, np.float32)
    assert doubts(values, (0.5,), (0.2,)) == ""
    values[1] = RANDOM.random((4, 8, 8))
    assert doubts(values, (0.5,), (0.2,)) == ""


def test_fixed_numbers_are_the_same_for_all_volumes():
    values = np.random.default_rng(0).integers(0, 255, (3, 2, 4, 4)).astype(np.uint8)
    mean, deviation = np.array([120.0, 110, 90]), np.array([60.0, 50, 40])
    volume = ArrayVolume(values, "photos")
    found = normalisation(volume, Fixed(tuple(mean), tuple(deviation))).apply(values)
    expected = (values - mean[:, None, None, None]) / deviation[:, None, None, None]
    assert np.allclose(found, expected, atol=1e-6)
    halved = normalisation(volume, Fixed((1.0,), (2.0,))).apply(values)
    assert np.array_equal(halved, (values - np.float32(1)) / 2)
    with pytest.raises(VolumeError, match=r"data.normalize.mean has 2 numbers, but photos has 3"):
        normalisation(volume, Fixed((1.0, 2.0), (1.0,)))
