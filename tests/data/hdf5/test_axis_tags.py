"""Axes of HDF5 datasets in the order that ilastik and vigra name: (z, y, x, c), with times, in chunks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from znnpy.data.opening import open_volume
from znnpy.errors import VolumeError

WANTED = np.random.default_rng(0).random((2, 5, 6, 7)).astype(np.float32)


def tagged(path: Path, axes: str, array: Any, **more: Any) -> Path:
    with h5py.File(path, "w") as file:
        data = file.create_dataset("exported_data", data=array, **more)
        keys = [{"key": key, "typeFlags": 2, "resolution": 0, "description": ""} for key in axes]
        data.attrs["axistags"] = json.dumps({"axes": keys})
    return path


@pytest.mark.parametrize("axes", ["zyxc", "tzyxc", "xyzc", "czyx", "tczyx", "zcyx"])
@pytest.mark.parametrize("chunks", [None, 2])
def test_any_order(tmp_path: Path, axes: str, chunks: int | None) -> None:
    full = WANTED[None].transpose(["tczyx".index(axis) for axis in axes.rjust(5, "t")])
    array = full if "t" in axes else full[0]
    sizes = tuple(min(n, 2) for n in array.shape) if chunks else None
    more = {"chunks": sizes, "compression": "gzip"} if chunks else {}
    with open_volume(tagged(tmp_path / "a.h5", axes, array, **more)) as volume:
        assert volume.shape == WANTED.shape
        assert not volume.unnamed
        assert volume.chunk == ((2, 2, 2) if chunks else (1, 6, 7))
        assert np.array_equal(volume.read_all(), WANTED)
        assert np.array_equal(volume.read((1, 2, 3), (4, 5, 7)), WANTED[:, 1:4, 2:5, 3:7])


def test_fewer_axes(tmp_path: Path) -> None:
    for axes, array in (("yxc", np.moveaxis(WANTED[:, 0], 0, -1)), ("yx", WANTED[0, 0])):
        with open_volume(tagged(tmp_path / f"{axes}.h5", axes, array)) as volume:
            assert np.array_equal(volume.read_all(), WANTED[: len(axes) - 1, :1])


def test_a_plane_is_one_slice(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("picture", data=WANTED[0, 0], chunks=(4, 3), compression="gzip")
    with open_volume(tmp_path / "a.h5") as volume:
        assert volume.shape == (1, 1, 6, 7)
        assert volume.chunk == (1, 4, 3)
        assert np.array_equal(volume.read((0, 2, 1), (1, 6, 7))[0, 0], WANTED[0, 0, 2:, 1:])


def test_what_is_refused_or_no_tag(tmp_path: Path) -> None:
    several = np.zeros((3, 2, 5, 6, 7), np.uint8)
    for axes, array in (("tczyx", several), ("zyx", several[0]), ("zyxx", several[0])):
        with pytest.raises(VolumeError, match=r"by its axistags; expected z, y, x"):
            open_volume(tagged(tmp_path / "a.h5", axes, array), "exported_data")
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["raw"] = several[0]
        for tags in ("no JSON", json.dumps([1]), np.zeros(9), json.dumps({"axes": 3})):
            file["raw"].attrs["axistags"] = tags
            file.flush()
            with open_volume(tmp_path / "b.h5") as volume:
                assert volume.shape == (2, 5, 6, 7)
                assert volume.unnamed
