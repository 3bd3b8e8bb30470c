"""napari's reader: runs, files and folders of chunks become layers that lie where they lie; others are left alone."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from nets_of_backends import run_folder

from znnpy.backends.napari_reader import get_reader
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.zarr_output import write_zarr
from znnpy.errors import VolumeError

RNG = np.random.default_rng(0)


def stack(path: Path) -> Path:
    raw = RNG.integers(0, 255, (6, 12, 10)).astype(np.uint8)
    with h5py.File(path, "w") as file:
        file["raw"] = raw
        file["raw"].attrs["resolution"] = (40.0, 4.0, 8.0)
        file["raw"].attrs["offset"] = (80.0, 4.0, 0.0)
    return path


def read(path: Path) -> list:
    reader = get_reader(str(path))
    assert reader is not None
    return reader(str(path))


def test_an_image_lies_where_its_file_says(tmp_path: Path) -> None:
    ((array, named, kind),) = read(stack(tmp_path / "a.h5"))
    with h5py.File(tmp_path / "a.h5") as file:
        np.testing.assert_array_equal(array, file["raw"])
    assert kind == "image"
    assert tuple(named["scale"]) == (40, 4, 8)
    assert tuple(named["translate"]) == (80, 4, 0)
    assert named["units"] == ("nm",) * 3


def test_labels_and_channels_of_zarr(tmp_path: Path) -> None:
    labels = RNG.integers(0, 9, (4, 5, 6)).astype(np.uint32)
    write_zarr(Destination(tmp_path / "labels.zarr", ""), labels)
    ((array, _, kind),) = read(tmp_path / "labels.zarr")
    assert kind == "labels"
    np.testing.assert_array_equal(array, labels)
    values = RNG.random((3, 4, 5, 6)).astype(np.float32)
    write_zarr(Destination(tmp_path / "prediction.zarr", ""), values)
    ((array, named, kind),) = read(tmp_path / "prediction.zarr")
    assert (kind, named["channel_axis"], len(named["name"])) == ("image", 0, 3)
    np.testing.assert_array_equal(array, values)


def test_a_run_becomes_what_view_shows_of_it(tmp_path: Path) -> None:
    stack(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["labels"] = RNG.integers(0, 3, (6, 12, 10)).astype(np.uint32)
    volume = {"image": str(tmp_path / "a.h5:raw"), "labels": str(tmp_path / "a.h5:labels")}
    run = run_folder(
        tmp_path / "run",
        {"layers": [{"conv": {"channels": 1, "size": 3}}]},
        data={"train": [volume], "resolution": [40, 4, 8], "target": "boundary"},
    )
    layers = read(run)
    assert [kind for *_, kind in layers] == ["image", "labels", "image", "labels"]
    # The net loses a voxel at each border.
    prediction, named, _ = layers[2]
    assert prediction.shape == (4, 10, 8)
    assert tuple(named["translate"])[1:] == (4 + 4, 8)


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.tif").touch()
    for path in ("folder", "a.tif", "nothing", "a.txt"):
        assert get_reader(str(tmp_path / path)) is None
    assert get_reader([str(tmp_path / "a.h5"), str(tmp_path / "b.h5")]) is None


def test_errors_are_for_people(tmp_path: Path) -> None:
    (tmp_path / "a.h5").write_bytes(b"no HDF5")
    with pytest.raises(VolumeError, match=r"a\.h5"):
        read(tmp_path / "a.h5")
