"""HDF5 files are recognised as h5py recognises them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import h5py
import pytest

from znnpy.data.hdf5.signature import SIGNATURE, is_hdf5


@pytest.mark.parametrize("block", [0, 512, 1024, 8192])
def test_files_with_and_without_a_user_block(tmp_path: Path, block: int) -> None:
    path = tmp_path / "some"
    with h5py.File(path, "w", userblock_size=block) as file:
        file["raw"] = [1, 2]
    assert is_hdf5(path)
    assert h5py.is_hdf5(path)


@pytest.mark.parametrize(
    "content",
    [b"", SIGNATURE[:-1], b"P" * 2000, b"P" * 100 + SIGNATURE, b"P" * 1536 + SIGNATURE * 2],
)
def test_other_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "some"
    path.write_bytes(content)
    assert not is_hdf5(path)
    assert not h5py.is_hdf5(path)


def test_what_cannot_be_read_is_none(tmp_path: Path) -> None:
    assert not is_hdf5(tmp_path)
    assert not is_hdf5(tmp_path / "none")


def test_formats_are_known_without_their_libraries() -> None:
    script = (
        "import sys, znnpy.data.opening; print({'h5py', 'tifffile', 'nibabel'} & {*sys.modules})"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"
