"""Normalisation by own values beside NumPy: deviation, range, percentiles; of volumes, of slices, without zeros."""

from __future__ import annotations

import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest

from znnpy.data.opening import open_volume
from znnpy.data.values import moments
from znnpy.data.values.normalization import Clip, normalisation
from znnpy.data.values.own_statistics import Own
from znnpy.data.volume import ArrayVolume
from znnpy.errors import VolumeError

OWN = {
    "mean_std": Own("mean_std"),
    "range": Own("range"),
    "percentiles": Own("percentiles", 2.0, 97.0),
    "clipped": Own("percentiles", 2.0, 97.0, clip=True),
}


def volume_values(dtype: str) -> np.ndarray:
    random = np.random.default_rng(3)
    values = random.integers(1, 200, (2, 6, 9, 7)).astype(dtype)
    values[1] //= 2
    values[:, :, :3] = 0
    values[0, 2] = 0  # a slice without any value
    return values


def wanted(values: np.ndarray, kind: str) -> np.ndarray:
    """What numbers of some values, 1-D, make of them."""
    exact = values.astype(np.float64)
    if not exact.size:
        return exact
    if kind == "mean_std":
        return (exact - exact.mean()) / (exact.std() or 1)
    low, high = np.percentile(exact, (0, 100) if kind == "range" else (2, 97))
    if kind == "clipped":
        exact = exact.clip(low, high)
    return (exact - low) / ((high - low) or 1)


def expected(values: np.ndarray, kind: str, by_slice: bool, nonzero: bool) -> np.ndarray:
    found = np.zeros(values.shape)
    regions = [
        (c, z)
        for c in range(values.shape[0])
        for z in (range(values.shape[1]) if by_slice else [...])
    ]
    for region in regions:
        some = values[region]
        counted = some != 0 if nonzero else np.ones(some.shape, bool)
        found[region][counted] = wanted(some[counted], kind)
    return found


@pytest.mark.filterwarnings("ignore:array. percentiles")
@pytest.mark.parametrize("dtype", ["u1", "u2", "i2", "f4", "f8"])
@pytest.mark.parametrize("kind", list(OWN))
@pytest.mark.parametrize("by_slice", [False, True])
@pytest.mark.parametrize("nonzero", [False, True])
def test_as_numpy_has_it(
    dtype: str, kind: str, by_slice: bool, nonzero: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, own = volume_values(dtype), OWN[kind]
    mode = Own(own.kind, own.low, own.high, own.clip, by_slice, nonzero)
    reference = expected(values, kind, by_slice, nonzero)
    planes = np.arange(values.shape[1])
    for piece in (moments.PIECE, 40):  # at once, and in pieces that cut slices
        monkeypatch.setattr(moments, "PIECE", piece)
        norm = normalisation(ArrayVolume(values), mode)
        np.testing.assert_allclose(norm.apply(values, planes=planes), reference, atol=2e-6)
        part = norm.apply(values[:, 1:3], planes=planes[1:3])
        np.testing.assert_allclose(part, reference[:, 1:3], atol=2e-6)


def test_slices_that_are_stored_together_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = volume_values("u2")[0]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("raw", data=values, chunks=(4, 4, 4))
    mode, planes = Own("mean_std", by_slice=True), np.arange(6)
    wanted_values = expected(values[None], "mean_std", True, False)
    with open_volume(tmp_path / "a.h5") as volume:
        reads = []
        whole = volume.read
        monkeypatch.setattr(volume, "read", lambda *a, **k: reads.append(a) or whole(*a, **k))
        monkeypatch.setattr(moments, "PIECE", 100)
        for slab, count in ((1 << 20, 2), (100, 24)):
            monkeypatch.setattr(moments, "SLAB", slab)
            reads.clear()
            found = normalisation(volume, mode).apply(values[None], planes=planes)
            np.testing.assert_allclose(found, wanted_values, atol=2e-6)
            assert len(reads) <= count
            assert all(np.prod(np.subtract(b, a)) <= max(slab, 4 * 7) for a, b in reads)


def test_values_that_are_not_finite_are_refused_or_left_out() -> None:
    values = volume_values("f4")
    values[0, 0, 4, 4], values[1, 3, 5, 5] = np.nan, np.inf
    volume = ArrayVolume(values, "scan")
    for mode in (Own("range"), Own("percentiles", 1, 99, by_slice=True)):
        with pytest.raises(VolumeError, match="scan: 2 values are NaN, infinite"):
            normalisation(volume, mode)
        norm = normalisation(volume, mode, replace=True)
        found = norm.apply(values, planes=np.arange(6))
        assert np.isfinite(found).all()
        assert found[0, 0, 4, 4] == found[1, 3, 5, 5] == 0


def test_percentiles_of_background_alone_are_told() -> None:
    values = np.zeros((1, 4, 8, 8), np.uint8)
    values[0, 1, 0] = 9
    with pytest.warns(
        UserWarning, match=r"scan: percentiles 1 and 90 are both 0, .* nonzero: true"
    ):
        normalisation(ArrayVolume(values, "scan"), Own("percentiles", 1, 90))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        normalisation(ArrayVolume(values, "scan"), Own("percentiles", 1, 90, nonzero=True))
        normalisation(ArrayVolume(values[:, 2:], "scan"), Own("percentiles", 1, 90))


def test_a_window_cuts_and_is_doubted_where_it_holds_no_value() -> None:
    values = np.random.default_rng(0).integers(-1000, 1000, (2, 3, 4, 5)).astype(np.int16)
    mode = Clip((50.0, 20.0), (100.0,), (-160.0, -100.0), (240.0, 300.0))
    found = normalisation(ArrayVolume(values), mode).apply(values)
    np.testing.assert_allclose(found[0], (values[0].clip(-160, 240) - 50.0) / 100, atol=1e-6)
    np.testing.assert_allclose(found[1], (values[1].clip(-100, 300) - 20.0) / 100, atol=1e-6)
    with pytest.warns(UserWarning, match="to the window from 2000 to 3000, which leaves one value"):
        normalisation(ArrayVolume(values), Clip((0.0,), (1000.0,), (2000.0,), (3000.0,)))
    with pytest.raises(VolumeError, match=r"data.normalize.low has 3 numbers"):
        normalisation(ArrayVolume(values), Clip((0.0,), (1.0,), (0.0, 0.0, 0.0), (1.0,)))
