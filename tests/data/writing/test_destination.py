"""A name on the command line becomes the place that is written, and what stands there is kept."""

from __future__ import annotations

import os
import resource
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from znnpy.data.writing.destination import Destination
from znnpy.data.writing.preflight import refuse_place
from znnpy.errors import VolumeError


@pytest.mark.parametrize(
    ("name", "dataset", "found"),
    [
        ("out.h5", "p", "out.h5:p"),
        ("out.h5:x/y", "x/y", "out.h5:x/y"),
        ("out.zarr", "", "out.zarr"),
        ("out.zarr:x", "x", "out.zarr:x"),
    ],
)
def test_names(name: str, dataset: str, found: str) -> None:
    there = Destination.named(name, "p")
    assert (there.path, there.dataset) == (Path(name.partition(":")[0]), dataset)
    assert there.name == found
    assert (there.format.name == "zarr") == (there.path.suffix == ".zarr")


@pytest.mark.parametrize("name", ["o.tif", "o.h5", "o.nrrd", "o.zarr"])
def test_a_disk_that_is_full_is_told_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    there = Destination.named(str(tmp_path / name), "p")
    values = np.arange(1000, dtype=np.uint32).reshape(10, 10, 10)
    # What is imported meanwhile would be kept cut off, and fail whoever imports it next.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(VolumeError, match=rf"{name}.*: File too large"):
            there.write(values, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_what_stands_there_is_refused_unless_replaced(tmp_path: Path) -> None:
    there = Destination(tmp_path / "out.h5", "p")
    there.refuse_standing()
    there.path.write_bytes(b"")
    with pytest.raises(VolumeError, match=r"out\.h5 exists already.*--overwrite"):
        there.refuse_standing()
    replace(there, overwrite=True).refuse_standing()


def test_formats_of_one_image_have_no_names_in_them() -> None:
    for name in ("a.tif", "a.nii.gz"):
        with pytest.raises(VolumeError, match=f"hold one image, which has no name: name {name}$"):
            Destination.named(f"{name}:x", "p")


@pytest.mark.parametrize("name", ["out:x", "a.xyz:x", "10:30/out:x"])
def test_names_whose_file_could_end_anywhere_are_refused(name: str) -> None:
    with pytest.raises(VolumeError, match=r"where does the name of the file end\? .* ends in \.h5"):
        Destination.named(name, "p")


@pytest.mark.parametrize("name", ["q.nii.npz", "q.npz", "q.PNX", "q.jpg", "q.gz"])
def test_formats_that_are_not_written_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(VolumeError, match=r"name a file q\.h5 or a folder q\.zarr"):
        refuse_place(tmp_path / name)


def test_devices_and_pipes_are_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.h5")
    for path in (Path("/dev/null"), tmp_path / "pipe.h5"):
        with pytest.raises(VolumeError, match="is no plain file; name a new one"):
            refuse_place(path)


@pytest.mark.parametrize("dataset", ["..", "x/../y", "x//y", "./x"])
def test_datasets_lead_out_of_no_group(dataset: str) -> None:
    with pytest.raises(VolumeError, match="no path inside"):
        Destination(Path("out.h5"), dataset)


def test_zarr_in_any_letters() -> None:
    assert Destination.named("a.ZARR", "p") == Destination(Path("a.ZARR"), "")
    assert Destination.named("a.ZARR", "p").format.name == "zarr"
