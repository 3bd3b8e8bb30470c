"""Reads arrays in NumPy's npz files, never through pickle."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from znnpy.data.file_changes import Watch
from znnpy.data.safety_limits import SEARCHED, Trust, claim_size
from znnpy.data.samples.in_memory import whole_volume
from znnpy.data.volume import Array, Volume
from znnpy.dataset_path import joined
from znnpy.errors import VolumeError, reason, refuse_own

ZIP = b"PK\x03\x04"
_SUFFIX = ".npy"
HEAD_BYTES = 12 + 10_000
"""Bytes of an array's header at most: NumPy refuses longer ones, but only after reading them."""


def open_npz(
    path: Path, dataset: str | None, names: tuple[str, ...], *, labels: bool, trust: Trust
) -> Volume:
    """Return one array of an npz file as a volume: the one asked for, of one of `names`, or the only one.

    Raises VolumeError for what is damaged, holds Python objects or declares more than is plausible.
    """
    watch = Watch()
    with path.open("rb") as file:
        watch.see(path, os.fstat(file.fileno()))
        try:
            with zipfile.ZipFile(file) as archive:
                name = _chosen(archive, path, dataset, names)
                array = _array(archive, f"{name}{_SUFFIX}", joined(path, name), trust)
        except VolumeError:
            watch.verify()
            raise
        except Exception as error:  # damaged archives raise nearly anything
            watch.verify()
            refuse_own(error)
            raise VolumeError(f"{path}: the npz file is damaged ({reason(error)})") from error
    watch.verify()
    return whole_volume(array, joined(path, name), labels=labels)


def _chosen(
    archive: zipfile.ZipFile, path: Path, dataset: str | None, names: tuple[str, ...]
) -> str:
    members = [info.filename for info in archive.infolist()[:SEARCHED]]
    found = [name.removesuffix(_SUFFIX) for name in members if name.endswith(_SUFFIX)]
    wanted = [dataset] if dataset else [name for name in names if name in found] or found
    if len(wanted) == 1 and wanted[0] in found:
        return wanted[0]
    if not found:
        raise VolumeError(f"{path} is an archive without arrays (.npy); unpack it first")
    listed = ", ".join(found[:20])
    if dataset:
        raise VolumeError(f"{path} has no array {dataset}; it holds: {listed}")
    raise VolumeError(f"{path}: name one of its arrays as FILE:NAME; it holds: {listed}")


def _array(archive: zipfile.ZipFile, member: str, name: str, trust: Trust) -> Array:
    info = archive.getinfo(member)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        # zipfile decompresses those without a bound
        raise VolumeError(
            f"{name} is compressed by another method than deflate, which NumPy never does"
        )
    with archive.open(info) as stream:
        head = io.BytesIO(stream.read(HEAD_BYTES))
        shape, dtype = _header(head, name)
        inside = info.file_size - head.tell()
    if dtype.kind not in "uifb" or dtype.itemsize > 8:
        what = "Python objects, which pickle alone reads: refused" if dtype.hasobject else dtype
        raise VolumeError(f"{name} holds {what}; expected integers or floats of at most 64 bits")
    claim_size(name, shape, dtype, info.compress_size, trust)
    declared = dtype.itemsize * int(np.prod(shape, dtype=object))
    if declared != inside:
        raise VolumeError(
            f"{name} is damaged: it declares {declared} bytes, shape {shape}, and has {inside}"
        )
    with archive.open(info) as stream:
        found: Array = np.lib.format.read_array(stream, allow_pickle=False)
    return found


def _header(stream: IO[bytes], name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise VolumeError(f"{name} is of version {version} of NumPy's format; 1.0 and 2.0 are read")
    shape, _, dtype = readers[version](stream)
    return shape, dtype
