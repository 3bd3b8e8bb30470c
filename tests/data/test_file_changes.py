"""Files that are cut, replaced, rewritten or removed while a volume is read: found in every format."""

from __future__ import annotations

import os
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from changes import CHANGES, FORMS, data_files, hdf5

from znnpy.data import local_chunks
from znnpy.data.file_changes import Watch
from znnpy.data.opening import load, open_volume
from znnpy.data.volume import ArrayVolume, Volume
from znnpy.errors import ChangedError, VolumeError

ARRAY = np.random.default_rng(0).integers(1, 255, (8, 16, 16)).astype(np.uint8)
HALF = ((0, 0, 0), (4, 8, 8))


def written(tmp_path: Path, form: str) -> Path:
    name, write = FORMS[form]
    write(tmp_path / name, ARRAY)
    return tmp_path / name


def read_and_verify(volume: Volume) -> None:
    volume.read_all()
    volume.verify()


@pytest.mark.quick(16)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("begun", [True, False])
def test_a_change_is_found_by_the_next_read(
    tmp_path: Path, form: str, change: str, begun: bool
) -> None:
    path = written(tmp_path, form)
    with open_volume(path) as volume:
        if begun:
            volume.read_all()
            volume.verify()
        CHANGES[change](path)
        with pytest.raises(ChangedError, match="has changed while it was read") as caught:
            read_and_verify(volume)
        assert path.name in str(caught.value)
        assert "copy" in str(caught.value)


@pytest.mark.parametrize("form", [2, 3])
@pytest.mark.parametrize("name", ["default", "v2"])
@pytest.mark.parametrize("separator", [".", "/"])
@pytest.mark.parametrize("change", ["rewritten", "gone"])
def test_chunks_of_any_names_are_noted(
    tmp_path: Path, form: int, name: str, separator: str, change: str
) -> None:
    keys = {"name": "v2" if form == 2 else name, "separator": separator}
    made = zarr.create_array(
        tmp_path / "a.zarr",
        data=ARRAY,
        chunks=(4, 8, 8),
        zarr_format=form,  # type: ignore[arg-type]
        chunk_key_encoding=keys,  # type: ignore[arg-type]
    )
    assert made.shape == ARRAY.shape
    with open_volume(tmp_path / "a.zarr") as volume:
        CHANGES[change](tmp_path / "a.zarr")
        with pytest.raises(ChangedError):
            read_and_verify(volume)


@pytest.mark.parametrize("form", ["zarr 2", "zarr 3", "zarr shards"])
@pytest.mark.parametrize("ahead", [0, 3600])
def test_more_chunks_than_are_noted_must_be_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, ahead: int
) -> None:
    """By the clock, or by their folder: that of a file server may be ahead."""
    path = written(tmp_path, form)
    monkeypatch.setattr(local_chunks, "FILES", 0)
    server = time.time_ns() + ahead * 10**9
    for file in path.rglob("*"):
        os.utime(file, ns=(server, server))
    with open_volume(path) as volume:
        assert np.array_equal(volume.read_all()[0], ARRAY)
    with open_volume(path) as volume:
        for file in data_files(path):
            os.utime(file, ns=(server, server + 10**9))
        with pytest.raises(ChangedError, match="it was written to at"):
            read_and_verify(volume)


@pytest.mark.parametrize("form", FORMS)
def test_what_stays_is_read_again_and_again(tmp_path: Path, form: str) -> None:
    with open_volume(written(tmp_path, form)) as volume:
        for _ in range(3):
            assert np.array_equal(volume.read_all()[0], ARRAY)
            volume.verify()


@pytest.mark.parametrize("form", ["zarr 2", "zarr 3"])
def test_a_chunk_that_goes_before_it_is_read_is_no_empty_chunk(tmp_path: Path, form: str) -> None:
    path = written(tmp_path, form)
    with open_volume(path) as volume:
        volume.read(*HALF)
        data_files(path)[-1].unlink()
        with pytest.raises(ChangedError):
            volume.read_all()


@pytest.mark.parametrize("form", ["zarr 2", "zarr 3"])
def test_chunks_that_were_never_written_are_empty(tmp_path: Path, form: str) -> None:
    path = written(tmp_path, form)
    data_files(path)[-1].unlink()
    with open_volume(path) as volume:
        assert not volume.read((4, 8, 8), (8, 16, 16)).any()
        volume.read_all()
        volume.verify()


def test_what_memory_holds_is_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, "hdf5")
    loaded = load(open_volume(path), "memory")
    assert isinstance(loaded, ArrayVolume)
    CHANGES["cut"](path)
    read_and_verify(loaded)
    hdf5(path, ARRAY)
    volume = open_volume(path)
    read = type(volume).read
    monkeypatch.setattr(
        type(volume), "read", lambda *a, **k: (read(*a, **k), CHANGES["cut"](path))[0]
    )
    with pytest.raises(ChangedError):
        load(volume, "memory")


def test_other_files_of_a_dataset_count(tmp_path: Path) -> None:
    hdf5(tmp_path / "parts.h5", ARRAY)
    layout = h5py.VirtualLayout(ARRAY.shape, ARRAY.dtype)
    layout[:] = h5py.VirtualSource("parts.h5", "raw", ARRAY.shape)
    with h5py.File(tmp_path / "virtual.h5", "w") as file:
        file.create_virtual_dataset("raw", layout)
    with h5py.File(tmp_path / "link.h5", "w") as file:
        file["raw"] = h5py.ExternalLink("parts.h5", "/raw")
    with h5py.File(tmp_path / "outside.h5", "w") as file:
        outside = [(str(tmp_path / "parts.h5"), 0, ARRAY.nbytes)]
        file.create_dataset("raw", ARRAY.shape, "u1", external=outside)
    for name in ("virtual.h5", "link.h5", "outside.h5"):
        with open_volume(tmp_path / name, allow_external=True) as volume:
            read_and_verify(volume)
            CHANGES["rewritten"](tmp_path / "parts.h5")
            with pytest.raises(ChangedError, match=r"parts\.h5 has changed"):
                volume.verify()


def test_words(tmp_path: Path) -> None:
    file, watch = tmp_path / "a", Watch()
    file.write_bytes(b"four")
    watch.look(file)
    file.write_bytes(b"seven")
    with pytest.raises(ChangedError, match="it has 5 bytes and had 4"):
        watch.look(file)
    file.unlink()
    with pytest.raises(ChangedError, match="it is gone"):
        watch.verify()
    other = Watch()
    other.look(file)
    file.write_bytes(b"four")
    with pytest.raises(ChangedError, match="it was not there at first"):
        other.look(file)
    assert issubclass(ChangedError, VolumeError)
