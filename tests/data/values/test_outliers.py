"""NaN, infinity and absurd values in images are found, named, and refused, replaced or told."""

from __future__ import annotations

import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest

from znnpy.data.opening import open_volume
from znnpy.data.values import moments
from znnpy.data.values.normalization import normalisation
from znnpy.data.volume import ArrayVolume
from znnpy.errors import VolumeError

MODES = ("mean_std", "unit", "none")


def image(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(100, 20, (2, 6, 30, 40)).astype(np.float32)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_the_first_and_the_number_of_unusable_voxels_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, bad: float
) -> None:
    monkeypatch.setattr(moments, "SLAB", 4 * 2400)
    array = image().astype(np.float64)
    array[1, 3, 4, 5] = array[0, 5, 0, 1] = bad
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["raw"] = array
    words = r"a.h5:raw: 2 values .* \(z, y, x\) = \(3, 4, 5\), channel 1.*--replace-nonfinite"
    for volume in (ArrayVolume(array, "a.h5:raw"), open_volume(tmp_path / "a.h5")):
        with pytest.raises(VolumeError, match=words):
            normalisation(volume, mode)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", MODES)
def test_replaced_ones_are_0_and_all_others_as_without_them(mode: str) -> None:
    array = image()
    array[0, 1, 2, 3], array[1, 0, 0, 0] = np.nan, -np.inf
    good = np.isfinite(array)
    norm = normalisation(ArrayVolume(array), mode, replace=True)  # type: ignore[arg-type]
    found = norm.apply(array)
    assert (found[~good] == 0).all()
    if mode == "mean_std":
        for channel, values in enumerate(array):
            kept = values[good[channel]].astype(np.float64)
            assert norm.shift[channel] == pytest.approx(kept.mean())
            assert 1 / norm.scale[channel] == pytest.approx(kept.std())
    else:
        assert np.array_equal(found[good], array[good])


def test_without_any_the_bits_are_those_without_replacing() -> None:
    plain, replacing = (normalisation(ArrayVolume(image()), replace=r) for r in (False, True))
    assert np.array_equal(plain.shift, replacing.shift)
    assert np.array_equal(plain.apply(image()), replacing.apply(image()))


def test_a_channel_without_any_number_is_refused_in_any_case() -> None:
    array = image()
    array[1] = np.nan
    with pytest.raises(VolumeError, match="channel 1 holds no finite value"):
        normalisation(ArrayVolume(array), replace=True)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("far", [1e6, -1e30])
def test_an_absurd_value_is_told_and_kept(mode: str, far: float) -> None:
    array = image()
    array[1, 3, 4, 5] = far
    words = (
        r"channel 1: .* at \(z, y, x\) = \(3, 4, 5\) lies .* deviations from the others \(mean 1"
    )
    with pytest.warns(UserWarning, match=words):
        norm = normalisation(ArrayVolume(array), mode, replace=True)  # type: ignore[arg-type]
    assert norm.apply(array)[1, 3, 4, 5] != 0


@pytest.mark.parametrize(
    "array",
    [
        image(),
        np.zeros((3, 4, 5), np.float32),
        np.eye(30, dtype=np.float32)[None],
        np.random.default_rng(0).exponential(1, (4, 50, 50)) ** 3,
        (np.arange(6000).reshape(6, 20, 50) == 7) * np.uint8(255),
        (np.arange(6000).reshape(6, 20, 50) == 7) * np.uint16(65535),
    ],
)
def test_images_of_any_use_are_taken_without_a_word(array: np.ndarray) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        normalisation(ArrayVolume(array))


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_infinity_of_any_precision_is_unusable(dtype: type) -> None:
    array = image().astype(dtype)
    array[0, 1, 2, 3] = np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(VolumeError, match=r"1 values .* the first inf at"):
            normalisation(ArrayVolume(array))
        found = normalisation(ArrayVolume(array), replace=True).apply(array)
    assert found[0, 1, 2, 3] == 0
    assert np.isfinite(found).all()


@pytest.mark.parametrize(("far", "told"), [(700, False), (1500, True)])
def test_a_thousand_deviations_are_absurd(far: float, told: bool) -> None:
    """As docs/design/spectral.md counts on."""
    array = image()[:1]
    array[0, 2, 3, 4] = 100 + 20 * far
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        normalisation(ArrayVolume(array))
    assert bool(said) == told
