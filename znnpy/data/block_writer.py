"""Write a large volume block by block so that a killed process can go on where it stopped.

A block is acknowledged once its bytes and then its journal record are on the disk; the journal
beside the file names every acknowledged block with a checksum, and vanishes when all are written.
"""

from __future__ import annotations

import json
import os
import struct
import threading
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import h5py
import numpy as np

from znnpy.data.contiguous import Layout, allocate, replacing, sync_folder, write_at
from znnpy.data.hdf5_safety import open_file
from znnpy.data.volume import Array, Shape4, Triple
from znnpy.errors import ShapeError, VolumeError

Region = tuple[Triple, Triple]
_RECORD = struct.Struct("<6qI")
_CHECK = struct.Struct("<I")


class BlockWriter:
    """A new HDF5 file with one dataset (C, Z, Y, X), filled by `write` in any order.

    With the file and its journal present, and the same dataset, shape, dtype and `key`, it goes on:
    `done` holds the regions whose bytes still match their checksum. A file without journal is
    finished, and refused. Several threads may write blocks that do not overlap.
    """

    def __init__(
        self,
        path: str | Path,
        dataset: str,
        shape: Shape4,
        dtype: np.dtype[Any] | type[np.generic],
        attributes: Mapping[str, Any] | None = None,
        key: str = "",
    ) -> None:
        self.path = Path(path)
        self.journal = self.path.with_name(f"{self.path.name}.journal")
        self._layout = Layout(shape, np.dtype(dtype), attributes or {})
        self._dataset = dataset
        head = {
            "dataset": dataset,
            "shape": list(shape),
            "dtype": self._layout.dtype.str,
            "key": key,
        }
        self._head = json.dumps(head).encode() + b"\n"
        self._lock = threading.Lock()
        self.done: set[Region] = set()
        resumed = self.path.exists() and self.journal.exists()
        self._place = self._resume() if resumed else self._begin()
        self._file = os.open(self.path, os.O_RDWR)
        self._log = os.open(self.journal, os.O_WRONLY | os.O_APPEND)
        if resumed:
            self._recover()

    def write(self, lower: Triple, block: Array) -> None:
        """Write a block (C, z, y, x) with its first voxel at `lower`; on the disk on return."""
        upper = self._upper(lower, block.shape)
        data = np.ascontiguousarray(block, self._layout.dtype)
        for place, run in self._runs(lower, data):
            write_at(self._file, place, run)
        os.fdatasync(self._file)
        record = _RECORD.pack(*lower, *upper, zlib.crc32(data.data))
        with self._lock:
            write_all(self._log, record + _CHECK.pack(zlib.crc32(record)))
            os.fdatasync(self._log)
            self.done.add((lower, upper))

    def finish(self) -> None:
        """All blocks are written: remove the journal, close. Refused while voxels are missing."""
        written = sum(_voxels(lower, upper) for lower, upper in self.done)
        wanted = int(np.prod(self._layout.shape[1:], dtype=np.int64))
        if written < wanted:
            raise VolumeError(f"{self.path}: only {written} of {wanted} voxels were written")
        self.close()
        self.journal.unlink()
        sync_folder(self.path.parent)

    def close(self) -> None:
        """Close the files; the journal stays, so that writing can go on later."""
        for file in (self._file, self._log):
            if file >= 0:
                os.close(file)
        self._file = self._log = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _begin(self) -> int:
        with replacing(self.path, overwrite=False) as beside:
            place = allocate(beside, {self._dataset: self._layout})[self._dataset]
            # Before the file appears, or a kill in between would leave one that looks finished.
            self._new_journal()
        return place

    def _new_journal(self) -> None:
        file = os.open(self.journal, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            write_all(file, self._head)
            os.fsync(file)
        finally:
            os.close(file)

    def _resume(self) -> int:
        if not self.journal.read_bytes().startswith(self._head):
            raise VolumeError(
                f"{self.path} was begun with other settings ({self.journal} names them); go on "
                "with those, or remove both files"
            )
        with open_file(self.path) as file:
            data: h5py.Dataset = file[self._dataset]
            return int(data.id.get_offset())

    def _recover(self) -> None:
        """Keep the records that are whole and whose bytes match; rewrite the journal with them."""
        kept = self._head
        for record in _records(self.journal.read_bytes()[len(self._head) :]):
            z, y, x, to_z, to_y, to_x, checksum = _RECORD.unpack(record)
            region = ((z, y, x), (to_z, to_y, to_x))
            if zlib.crc32(self._read(*region).data) == checksum:
                self.done.add(region)
                kept += record + _CHECK.pack(zlib.crc32(record))
        os.ftruncate(self._log, 0)
        write_all(self._log, kept)
        os.fdatasync(self._log)

    def _read(self, lower: Triple, upper: Triple) -> Array:
        sizes = [b - a for a, b in zip(lower, upper, strict=True)]
        block = np.empty((self._layout.shape[0], *sizes), self._layout.dtype)
        for place, run in self._runs(lower, block):
            run[...] = np.frombuffer(os.pread(self._file, run.nbytes, place), run.dtype)
        return block

    def _runs(self, lower: Triple, block: Array) -> Iterator[tuple[int, Array]]:
        """Rows of a C-contiguous block as 1-D views, and where each lies in the file."""
        _, depth, height, width = self._layout.shape
        item = self._layout.dtype.itemsize
        for c, z, y in np.ndindex(block.shape[:3]):
            row = ((c * depth + lower[0] + z) * height + lower[1] + y) * width + lower[2]
            yield self._place + row * item, block[c, z, y]

    def _upper(self, lower: Triple, shape: tuple[int, ...]) -> Triple:
        whole = self._layout.shape
        fits = len(shape) == 4 and shape[0] == whole[0] and min(shape) > 0
        upper = tuple(a + n for a, n in zip(lower, shape[1:], strict=True)) if fits else ()
        if not fits or min(lower) < 0 or any(b > n for b, n in zip(upper, whole[1:], strict=True)):
            raise ShapeError(f"{self.path}: block {shape} at {lower} does not fit into {whole}")
        return (upper[0], upper[1], upper[2])


def write_all(file: int, data: bytes) -> None:
    """Write all bytes at the descriptor's position."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _records(data: bytes) -> Iterator[bytes]:
    """Whole records, up to the first that a kill cut short."""
    step = _RECORD.size + _CHECK.size
    for start in range(0, len(data) - step + 1, step):
        record = data[start : start + _RECORD.size]
        if _CHECK.unpack(data[start + _RECORD.size : start + step])[0] != zlib.crc32(record):
            return
        yield record


def _voxels(lower: Triple, upper: Triple) -> int:
    z, y, x = (b - a for a, b in zip(lower, upper, strict=True))
    return z * y * x
