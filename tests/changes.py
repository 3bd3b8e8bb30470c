"""Volumes of one content in every form, and what may happen to their files while they are read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt
import tifffile
import zarr

Array = npt.NDArray[np.generic]
Write = Callable[[Path, Array], None]


def hdf5(path: Path, array: Array, **options: object) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("raw", data=array, **options)


def tiff(path: Path, array: Array, **options: object) -> None:
    tifffile.imwrite(path, array, photometric="minisblack", metadata={"axes": "ZYX"}, **options)


def planes(path: Path, array: Array) -> None:
    path.mkdir()
    for z, plane in enumerate(array):
        tifffile.imwrite(path / f"z{z}.tif", plane, photometric="minisblack")


def zarrs(path: Path, array: Array, form: int, **options: object) -> None:
    group = zarr.open_group(path, mode="w", zarr_format=form)  # type: ignore[arg-type]
    group.create_array("raw", data=array, chunks=(4, 8, 8), **options)  # type: ignore[arg-type]


FORMS: Mapping[str, tuple[str, Write]] = {
    "hdf5": ("a.h5", hdf5),
    "hdf5 chunks": ("a.h5", partial(hdf5, chunks=(4, 8, 8), compression="gzip")),
    "tiff": ("a.tif", tiff),
    "tiff zlib": ("a.tif", partial(tiff, compression="zlib")),
    "planes": ("planes", planes),
    "zarr 2": ("a.zarr", partial(zarrs, form=2)),
    "zarr 3": ("a.zarr", partial(zarrs, form=3)),
    "zarr shards": ("a.zarr", partial(zarrs, form=3, shards=(8, 16, 16))),
}


def data_files(path: Path) -> list[Path]:
    """The file, or those of a folder that hold voxels."""
    names = (".zarray", ".zattrs", ".zgroup", ".zmetadata", "zarr.json")
    inside = sorted(f for f in path.rglob("*") if f.is_file() and f.name not in names)
    return inside if path.is_dir() else [path]


def cut(path: Path) -> None:
    for file in data_files(path):
        os.truncate(file, file.stat().st_size // 2)


def replaced(path: Path) -> None:
    """Others of the same bytes and times are moved over the files."""
    for file in data_files(path):
        other = file.with_name("other")
        shutil.copy2(file, other)
        other.rename(file)


def rewritten(path: Path) -> None:
    """The same number of bytes, in place; all files are as old as if a second had passed."""
    for file in data_files(path):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        with file.open("r+b") as opened:
            opened.write(data)
        later = file.stat().st_mtime_ns + 10**9
        os.utime(file, ns=(later, later))


def gone(path: Path) -> None:
    for file in data_files(path):
        file.unlink()


CHANGES: Mapping[str, Callable[[Path], None]] = {
    "cut": cut,
    "replaced": replaced,
    "rewritten": rewritten,
    "gone": gone,
}
