"""New files appear whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from znnpy.data.opening import open_volume
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.hdf5_output import write_volume
from znnpy.errors import VolumeError

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64, np.float32, np.int16, np.float16])
def test_round_trip(tmp_path: Path, dtype: type) -> None:
    array = RANDOM.integers(0, 100, (2, 3, 4, 5)).astype(dtype)[:, ::-1]
    path = tmp_path / "a.h5"
    write_volume(
        Destination(path, "volumes/raw"), array, {"resolution": [40, 4, 4], "offset": (1, 2, 3)}
    )
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.h5"]
    with open_volume(path) as volume:
        assert np.array_equal(volume.read_all(), array)
        assert volume.dtype == dtype
        assert volume.resolution == (40, 4, 4)
        assert volume.offset == (1, 2, 3)


def test_writes_that_stop_short_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, array = os.pwrite, RANDOM.integers(0, 100, (3, 4, 5)).astype(np.uint16)
    monkeypatch.setattr(os, "pwrite", lambda file, data, place: real(file, data[:7], place))
    write_volume(Destination(tmp_path / "a.h5", "raw"), array)
    with open_volume(tmp_path / "a.h5") as volume:
        assert np.array_equal(volume.read_all()[0], array)


def test_existing_file(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    write_volume(Destination(path, "raw"), np.zeros((2, 2, 2)))
    with pytest.raises(VolumeError, match=r"a\.h5 exists already"):
        write_volume(Destination(path, "raw"), np.ones((2, 2, 2)))
    write_volume(Destination(path, "raw", overwrite=True), np.ones((2, 2, 2)))
    with open_volume(path) as volume:
        assert volume.read_all().all()


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(VolumeError, match="there is no folder"):
        write_volume(Destination(tmp_path / "missing" / "a.h5", "raw"), np.zeros((2, 2, 2)))


@pytest.mark.parametrize("call", ["posix_fallocate", "pwrite", "fsync"])
def test_full_disk_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    write_volume(Destination(tmp_path / "old.h5", "raw"), np.zeros((2, 2, 2)))
    before = (tmp_path / "old.h5").read_bytes()
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(VolumeError, match=r"disk is full|no room on the disk"):
        write_volume(Destination(tmp_path / "old.h5", "raw", True), np.ones((2, 2, 2)))
    assert [entry.name for entry in tmp_path.iterdir()] == ["old.h5"]
    assert (tmp_path / "old.h5").read_bytes() == before
