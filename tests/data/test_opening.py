"""Which dataset is meant, what it tells, and loading it."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from znnpy.data import opening
from znnpy.data.hdf5.volume import Hdf5Volume
from znnpy.data.opening import load, open_volume
from znnpy.data.volume import ArrayVolume
from znnpy.errors import VolumeError

SAMPLE = Path(__file__).parents[2] / "volumes" / "fibsem"
CUBE = np.arange(24, dtype=np.uint16).reshape(2, 3, 4)


def test_sample_opens() -> None:
    with open_volume(SAMPLE / "train-image.h5") as raw:
        assert raw.shape == (1, 50, 100, 200)
        assert raw.dtype == np.uint8
        assert raw.nbytes == 10**6
        assert raw.resolution == (1, 1, 1)
        assert raw.read((1, 2, 3), (4, 6, 8)).shape == (1, 3, 4, 5)
    with open_volume(SAMPLE / "test-gt.lzf.h5", role="labels") as labels:
        assert labels.dtype == np.int32
        assert labels.chunk == (7, 25, 50)
        assert labels.read_all().max() == 132


@pytest.mark.parametrize(
    ("names", "role", "chosen"),
    [
        (("volumes/raw", "raw", "main"), "raw", "volumes/raw"),
        (("other", "main"), "raw", "main"),
        (("volumes/labels/neuron_ids", "volumes/raw"), "labels", "volumes/labels/neuron_ids"),
        (("volumes/labels/neuron_ids", "volumes/raw"), "raw", "volumes/raw"),
        (("anything",), "labels", "anything"),
    ],
)
def test_default_dataset(tmp_path: Path, names: tuple[str, ...], role: str, chosen: str) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name in names:
            file[name] = CUBE
        file["flat"] = CUBE[0]
    with open_volume(tmp_path / "a.h5", role=role) as volume:  # type: ignore[arg-type]
        assert volume.name.endswith(f"a.h5:{chosen}")


def test_channels_endianness_and_attributes(tmp_path: Path) -> None:
    data = np.arange(48, dtype=">i2").reshape(2, 2, 3, 4)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["raw"] = data
        file["raw"].attrs["element_size_um"] = [0.04, 0.004, 0.004]
        file["raw"].attrs["offset"] = [40, 0, 8]
    with open_volume(tmp_path / "a.h5") as volume:
        assert volume.shape == (2, 2, 3, 4)
        assert volume.dtype.isnative
        assert volume.resolution == pytest.approx((40, 4, 4))
        assert volume.offset == (40, 0, 8)
        region = volume.read((1, 0, 2), (2, 3, 4))
        assert region.dtype == np.int16
        assert np.array_equal(region, data[:, 1:2, :, 2:4])
    with open_volume(tmp_path / "a.h5", resolution=(1, 2, 3)) as volume:
        assert volume.resolution == (1, 2, 3)


@pytest.mark.parametrize("other", [h5py.Empty("i4"), "text", 3, [[1.5, 0, 0]], np.zeros((2000, 3))])
def test_offsets_of_another_meaning_are_passed_over(tmp_path: Path, other: object) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["raw"] = CUBE
        file["raw"].attrs["offsets"] = file["raw"].attrs["first_class"] = other
    with open_volume(tmp_path / "a.h5") as volume:
        assert volume.neighbours is None
        assert volume.first_class == (other if isinstance(other, int) else None)
        assert np.array_equal(volume.read_all()[0], CUBE)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_not_finite_is_refused_with_its_position(tmp_path: Path, bad: float) -> None:
    data = np.zeros((4, 5, 6), np.float32)
    data[3, 1, 2] = bad
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["raw"] = data
    with pytest.raises(VolumeError, match=r"a\.h5:raw.*\(3, 1, 2\)"):
        load(open_volume(tmp_path / "a.h5")).read_all()
    with open_volume(tmp_path / "a.h5") as volume:
        with pytest.raises(VolumeError, match=r"\(3, 1, 2\)"):
            volume.read((2, 1, 2), (4, 2, 4))
        assert not volume.read((0, 0, 0), (3, 5, 6)).any()


def test_load_in_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "slabs", lambda volume: [(0, 13), (13, 14), (14, 50)])
    opened = open_volume(SAMPLE / "train-image.h5")
    loaded = load(opened)
    assert isinstance(loaded, ArrayVolume)
    with h5py.File(SAMPLE / "train-image.h5") as file:
        assert np.array_equal(loaded.array[0], file["stack"][()])
    with pytest.raises(VolumeError, match="closed"):
        opened.read_all()


def test_load_only_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "available_memory", lambda: 1_900_000)
    with open_volume(SAMPLE / "train-image.h5") as volume:
        assert load(volume) is volume
        assert isinstance(volume, Hdf5Volume)
        with pytest.raises(VolumeError, match=r"976.6 KiB.*1.8 MiB"):
            load(volume, "memory")
    monkeypatch.setattr(opening, "available_memory", lambda: 2_000_000)
    assert isinstance(load(open_volume(SAMPLE / "train-image.h5")), ArrayVolume)
    with open_volume(SAMPLE / "train-image.h5") as volume:
        assert load(volume, "file") is volume


def test_what_cannot_be_seen_is_told(tmp_path: Path) -> None:
    (tmp_path / "loop.h5").symlink_to("loop.h5")
    (tmp_path / "gone.h5").symlink_to("/nowhere/x.h5")
    for name, words in (
        ("loop.h5", "cannot be read: Too many levels of symbolic links"),
        ("gone.h5", "does not exist: it is a link to /nowhere/x.h5"),
        ("x" * 300, "cannot be read: File name too long"),
        ("none/a.h5", "does not exist; there is no folder .*/none$"),
    ):
        with pytest.raises(VolumeError, match=words):
            open_volume(tmp_path / name)


def test_a_run_is_no_image(tmp_path: Path) -> None:
    """Its pictures would be taken for slices."""
    Image.new("L", (4, 4)).save(tmp_path / "prediction.png")
    assert open_volume(tmp_path).shape == (1, 1, 4, 4)
    (tmp_path / "config.yaml").touch()
    assert open_volume(tmp_path).shape == (1, 1, 4, 4)
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(VolumeError, match="is a run, not an image"):
        open_volume(tmp_path)
