"""TIFF files whose pages nobody here can decode say what to install."""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path

import numpy as np
import pytest
import tifffile

from znnpy.data.opening import open_volume
from znnpy.errors import VolumeError

STACK = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
WITHOUT = importlib.util.find_spec("imagecodecs") is None


def stored_as(path: Path, compression: int, planes: int = 3) -> None:
    """A stack whose pages claim to be compressed by a method of this number."""
    tifffile.imwrite(path, STACK[:planes], photometric="minisblack")
    with tifffile.TiffFile(path) as tiff:
        places = [page.tags["Compression"].valueoffset for page in tiff.pages]
    data = bytearray(path.read_bytes())
    for place in places:
        data[place : place + 2] = struct.pack("<H", compression)
    path.write_bytes(data)


@pytest.mark.skipif(not WITHOUT, reason="with imagecodecs they can be read")
@pytest.mark.parametrize(("number", "name"), [(5, "LZW"), (7, "JPEG"), (4, "CCITTFAX4")])
def test_a_package_that_is_missing_is_named(tmp_path: Path, number: int, name: str) -> None:
    stored_as(tmp_path / "a.tif", number)
    words = (
        rf"a\.tif is stored with compression {name}, .*imagecodecs.* pip install \"znnpy\[tiff\]\""
    )
    with pytest.raises(VolumeError, match=words):
        open_volume(tmp_path / "a.tif")
    (tmp_path / "planes").mkdir()
    stored_as(tmp_path / "planes" / "a.tif", number, 1)
    with pytest.raises(VolumeError, match=words):
        open_volume(tmp_path / "planes")


def test_what_nobody_knows_needs_no_package(tmp_path: Path) -> None:
    stored_as(tmp_path / "a.tif", 60000)
    with pytest.raises(VolumeError, match="compression 60000, which nobody knows") as caught:
        open_volume(tmp_path / "a.tif")
    assert "imagecodecs" not in str(caught.value)
