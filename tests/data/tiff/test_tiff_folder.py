"""Folders of TIFF files: order, regions, planes that do not fit."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import tifffile

from znnpy.data.opening import load, open_volume
from znnpy.data.volume import ArrayVolume
from znnpy.errors import VolumeError

STACK = np.random.default_rng(0).integers(0, 60000, (12, 9, 7), np.uint16)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "planes").mkdir()
    for z, plane in enumerate(STACK):
        options = {"compression": "zlib"} if z % 2 else {"byteorder": ">"}
        tifffile.imwrite(tmp_path / "planes" / f"s1_z{z}.tif", plane, **options)
    (tmp_path / "planes" / "notes.txt").write_text("not a plane")
    (tmp_path / "planes" / "._s1_z3.tif").write_bytes(b"left by another system")
    return tmp_path / "planes"


def test_planes_in_the_order_of_their_numbers(folder: Path) -> None:
    with open_volume(folder) as volume:
        assert (volume.shape, volume.dtype) == ((1, *STACK.shape), np.dtype(np.uint16))
        assert np.array_equal(volume.read_all()[0], STACK)
        assert np.array_equal(volume.read((2, 3, 1), (11, 8, 6))[0], STACK[2:11, 3:8, 1:6])
    with pytest.raises(VolumeError, match="closed"):
        volume.read_all()
    loaded = load(open_volume(folder))
    assert isinstance(loaded, ArrayVolume)
    assert np.array_equal(loaded.array[0], STACK)


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        ((), ""),
        ((5,), r"s1_z4.tif is followed by s1_z6.tif; what is missing"),
        ((3, 4, 9), r"s1_z2.tif is followed by s1_z5.tif, and 1 more such gaps;"),
        ((1, 3, 5, 7, 9, 11), ""),  # every other one
        ((0, 11), ""),
        ((1, 3, 5, 6, 8, 10), ""),  # no number of steps: 4 to 7 among steps of 2
    ],
)
def test_a_plane_that_is_missing_is_told(folder: Path, gone: tuple[int, ...], words: str) -> None:
    for z in gone:
        (folder / f"s1_z{z}.tif").unlink()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with open_volume(folder) as volume:
            assert volume.extent[0] == 12 - len(gone)
    assert len(told) == bool(words)
    assert all(re.search(words, str(one.message)) for one in told)


def test_numbers_that_begin_again_have_no_gap(folder: Path) -> None:
    """Several series: where one ends and the next begins is not known."""
    for z in range(6, 12):
        (folder / f"s1_z{z}.tif").rename(folder / f"s2_z{z - 3}.tif")
    (folder / "s1_z4.tif").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_volume(folder).close()


@pytest.mark.parametrize("planar", ["contig", "separate"])
def test_samples_are_channels(tmp_path: Path, planar: str) -> None:
    colour = np.random.default_rng(1).integers(0, 255, (4, 3, 3, 3), np.uint8)
    for z, plane in enumerate(colour):
        shown = plane if planar == "separate" else np.moveaxis(plane, 0, -1)
        tifffile.imwrite(tmp_path / f"{z}.tiff", shown, photometric="rgb", planarconfig=planar)
    with open_volume(tmp_path) as volume:
        assert np.array_equal(volume.read_all(), colour.swapaxes(0, 1))


@pytest.mark.parametrize(
    "plane", [STACK[0, :8], STACK[0].astype(np.uint8), np.stack([STACK[0]] * 3, -1), STACK[:3]]
)
def test_plane_unlike_the_first(folder: Path, plane: np.ndarray) -> None:
    tifffile.imwrite(folder / "s1_z5.tif", plane, photometric="minisblack")
    with open_volume(folder) as volume:
        assert volume.read((0, 0, 0), (5, 9, 7)).any()
        with pytest.raises(VolumeError, match=r"s1_z5\.tif"):
            volume.read_all()


def test_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(VolumeError, match="folder of TIFF files"):
        open_volume(f"{folder}:raw")
    with pytest.raises(VolumeError, match="at most"):
        open_volume(folder, max_bytes=100)
    (folder / "s1_z0.tif").write_bytes(b"II*\0 damaged")
    with pytest.raises(
        VolumeError, match=r"s1_z0\.tif.*are one volume, a pattern such as .*\*.tif"
    ):
        open_volume(folder)
    (folder / "s1_z0.tif").unlink()
    with open_volume(folder) as volume:
        (folder / "s1_z7.tif").unlink()
        with pytest.raises(VolumeError, match="it is gone"):
            volume.read_all()
    (tmp_path / "empty").mkdir()
    with pytest.raises(VolumeError, match="no TIFF, PNG or JPEG files"):
        open_volume(tmp_path / "empty")


@pytest.mark.parametrize("plane", [0, 3])
def test_a_plane_without_rows(folder: Path, plane: int) -> None:
    with pytest.warns(UserWarning, match="zero-size"):
        tifffile.imwrite(folder / f"s1_z{plane}.tif", np.zeros((0, 7), np.uint16))
    with pytest.raises(VolumeError, match=rf"s1_z{plane}\.tif: the plane is empty"):
        open_volume(folder).read_all()


def test_links_out_of_the_folder(folder: Path, tmp_path: Path) -> None:
    moved = (folder / "s1_z4.tif").rename(tmp_path / "elsewhere.tif")
    (folder / "s1_z4.tif").symlink_to(moved)
    with pytest.raises(VolumeError, match="leads out"), open_volume(folder) as volume:
        volume.read_all()
    with open_volume(folder, allow_external=True) as volume:
        assert np.array_equal(volume.read_all()[0], STACK)
