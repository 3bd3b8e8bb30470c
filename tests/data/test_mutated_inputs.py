"""Files damaged at random, the same each time: they open and read, or are refused by one error."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import h5py
import pytest
import tifffile
from damage import CUBE, damaged, mutate, write_image

from znnpy.data.source import open_volume
from znnpy.errors import VolumeError


def opened_or_refused(path: Path) -> bool:
    """Whether it could be read; any error but the one for people fails the test."""
    refusal = None
    try:
        with open_volume(path) as volume:
            assert len(volume.shape) == 4
            volume.read_all()
    except VolumeError as error:
        refusal = str(error)
    assert refusal is None or path.name in refusal
    return refusal is None


@pytest.mark.parametrize("form", [2, 3])
def test_zarr_metadata(tmp_path: Path, form: int) -> None:
    path, choose = tmp_path / "a.zarr", random.Random(form)
    write_image(path, form)
    files = sorted(f for f in path.rglob("*") if f.name in ("zarr.json", ".zarray", ".zattrs"))
    outcomes = set()
    for _ in range(150):
        file = choose.choice(files)
        whole = file.read_text()
        metadata = json.loads(whole)
        mutate(metadata, choose)
        file.write_text(json.dumps(metadata))
        outcomes.add(opened_or_refused(path))
        file.write_text(whole)
    assert outcomes == {True, False}
    assert opened_or_refused(path)


@pytest.mark.parametrize("form", [2, 3])
def test_zarr_bytes(tmp_path: Path, form: int) -> None:
    path, choose = tmp_path / "a.zarr", random.Random(form)
    write_image(path, form)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    for _ in range(120):
        file = choose.choice(files)
        whole = file.read_bytes()
        file.write_bytes(damaged(whole, choose))
        opened_or_refused(path)
        file.write_bytes(whole)
    assert opened_or_refused(path)


@pytest.mark.parametrize("options", [{}, {"imagej": True}, {"compression": "zlib"}, {"ome": True}])
def test_tiff_bytes(tmp_path: Path, options: dict[str, Any]) -> None:
    path, choose = tmp_path / "a.tif", random.Random(0)
    tifffile.imwrite(path, CUBE, photometric="minisblack", metadata={"axes": "ZYX"}, **options)
    whole = path.read_bytes()
    for _ in range(150):
        path.write_bytes(damaged(whole, choose))
        opened_or_refused(path)


@pytest.mark.parametrize("options", [{}, {"chunks": (2, 3, 4), "compression": "gzip"}])
def test_hdf5_bytes(tmp_path: Path, options: dict[str, Any]) -> None:
    path, choose = tmp_path / "a.h5", random.Random(0)
    with h5py.File(path, "w") as file:
        made = file.create_dataset("volumes/raw", data=CUBE, **options)
        made.attrs.update({"resolution": [4.0, 4.0, 4.0], "offset": [0, 0, 0]})
    whole = path.read_bytes()
    for _ in range(150):
        path.write_bytes(damaged(whole, choose))
        opened_or_refused(path)
