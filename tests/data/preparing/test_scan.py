"""Scans prepared and put back: axes, cropping and each way to normalise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.ndimage import binary_fill_holes

from znnpy.config import check_section
from znnpy.config.prepare_section import PrepareSection
from znnpy.data.preparing.scan import prepare, prepared_labels
from znnpy.data.volume import ArrayVolume
from znnpy.errors import ConfigError, VolumeError

SIZE = (3e6, 2e6, 1e6)


def section(**keys: Any) -> PrepareSection:
    return check_section(PrepareSection, {"normalize": ["none"], **keys}, "prepare")


def scan(channels: int = 1, dtype: Any = np.int16) -> np.ndarray:
    rng = np.random.default_rng(0)
    raw = rng.integers(1, 200, (channels, 7, 9, 11)).astype(dtype)
    raw[:, :2] = raw[:, :, :3] = raw[:, :, :, -4:] = 0
    raw[:, 4, 5, 3] = 0  # a hole
    return raw


def test_axes_are_turned_and_zeros_cut_off() -> None:
    raw = scan()
    found = prepare(ArrayVolume(raw, "a", SIZE), section(transpose=[2, 0, 1]))
    assert found.array.dtype == np.float32
    assert np.array_equal(found.array[0], raw[0, 2:, 3:, :-4].transpose(2, 0, 1))
    assert found.whole == (11, 7, 9)
    assert [(side.start, side.stop) for side in found.box] == [(0, 7), (2, 7), (3, 9)]
    assert found.before == found.after == (1e6, 3e6, 2e6)
    whole = prepare(ArrayVolume(raw, "a", SIZE), section(crop=False))
    assert np.array_equal(whole.array, raw)


def test_a_channel_that_is_not_0_keeps_voxels_of_all() -> None:
    raw = scan(2)
    raw[1, 0, 8, 10] = 5
    found = prepare(ArrayVolume(raw, "a"), section(normalize=["none", "none"]))
    assert found.array.shape == (2, 7, 6, 11)
    empty = prepare(ArrayVolume(raw * 0, "a"), section(normalize=["none", "none"]))
    assert empty.array.shape == (2, 7, 9, 11)


SCHEMES = {
    "deviation": ({"kind": "deviation"}, lambda x, _: (x - x.mean()) / x.std()),
    "inside": (
        {"kind": "deviation", "inside": True},
        lambda x, m: np.where(m, (x - x[m].mean()) / x[m].std(), x),
    ),
    "clip": (
        {"kind": "clip", "low": 20, "high": 150, "mean": 70, "deviation": 30},
        lambda x, _: (x.clip(20, 150) - 70) / 30,
    ),
    "range": ({"kind": "range"}, lambda x, _: (x - x.min()) / (x.max() - x.min())),
    "bytes": ({"kind": "bytes"}, lambda x, _: x / 255),
    "none": ({"kind": "none"}, lambda x, _: x),
}


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("dtype", [np.int16, np.float32, np.uint8])
def test_schemes(name: str, dtype: Any) -> None:
    keys, formula = SCHEMES[name]
    raw = scan(dtype=dtype)
    found = prepare(ArrayVolume(raw, "a"), section(normalize=[keys])).array[0]
    kept = raw[0, 2:, 3:, :-4].astype(float)
    np.testing.assert_allclose(found, formula(kept, binary_fill_holes(kept != 0)), atol=1e-5)


def test_a_constant_scan_is_divided_by_nothing() -> None:
    flat = np.full((1, 3, 3, 3), 7.0, np.float32)
    for kind in ("deviation", "range"):
        assert not prepare(ArrayVolume(flat, "a"), section(normalize=[kind])).array.any()


def test_the_network_sees_voxels_of_its_size() -> None:
    found = prepare(ArrayVolume(scan(), "a", SIZE), section(spacing=[1.5e6, None, 2e6]))
    assert found.array.shape == (1, 10, 6, 4)
    assert found.after == (1.5e6, 2e6, 2e6)
    how = found.restoring(section())
    assert (how.shape, how.wanted, how.order) == ((10, 6, 4), (5, 6, 7), 1)


def test_labels_lie_as_their_scan_does() -> None:
    raw = scan()
    keys = section(transpose=[1, 0, 2])
    labels = (raw[0] > 100).astype(np.uint8)
    found = prepare(ArrayVolume(raw, "a", SIZE), keys)
    made = prepared_labels(ArrayVolume(labels, "l"), found, keys)
    assert np.array_equal(made.array[0], labels[2:, 3:, :-4].transpose(1, 0, 2))
    with pytest.raises(VolumeError, match="its scan others"):
        prepared_labels(ArrayVolume(labels[1:], "l"), found, keys)


def test_what_is_refused() -> None:
    volume = ArrayVolume(scan(), "a.nii.gz")
    with pytest.raises(VolumeError, match=r"a.nii.gz has 1 channel\(s\), but .* names 2"):
        prepare(volume, section(normalize=["none", "none"]))
    with pytest.raises(VolumeError, match="no voxel left"):
        prepare(volume, section(spacing=[99, None, None]))
    with pytest.raises(VolumeError, match=r"a.nii.gz holds values from -5 to .* colours"):
        prepare(ArrayVolume(scan() - np.int16(5), "a.nii.gz"), section(normalize=["bytes"]))
    for keys, words in (
        ({"transpose": [0, 1, 1]}, "each once"),
        ({"normalize": []}, "normalize"),
        (
            {"normalize": [{"kind": "clip", "low": 2, "high": 1, "mean": 0, "deviation": 1}]},
            "above",
        ),
        ({"resample": {"order": 4}}, "order"),
    ):
        with pytest.raises(ConfigError, match=words):
            section(**keys)
