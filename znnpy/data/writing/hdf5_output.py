"""Writes HDF5 files: whole arrays, or block by block so that a killed process can resume where it stopped.

HDF5 loses acknowledged data when a process dies in a chunked write, and crashes when the disk is
full. A contiguous dataset, allocated up front, is a known place in the file, so blocks go there by
`pwrite` and HDF5 only writes the header.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import h5py
import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.data.file_rows import write_rows

from znnpy.atomic_files import explained, replacing
from znnpy.data.process_memory import readable
from znnpy.data.volume import Array
from znnpy.data.writing.block_output import OutputSpec
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.journal import Region
from znnpy.data.writing.journaled_output import JournaledOutput
from znnpy.data.writing.preflight import refuse_place
from znnpy.errors import VolumeError, reason

Attributes = Mapping[str, Any]
HEADER = 16 << 10  # bytes that a file may need beside its data


@dataclass(frozen=True)
class Layout:
    """Shape, dtype and attributes of a dataset to create."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    attributes: Attributes = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """The bytes that the data take in the file."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


def write_volume(
    destination: Destination, array: Array, attributes: Attributes | None = None
) -> None:
    """Write one array as a new HDF5 file, atomically.

    CREMI's names are volumes/raw and volumes/labels/neuron_ids, its attributes `resolution` and
    `offset` in nanometres, z, y, x. Raises VolumeError, also when the disk is full.
    """
    path = destination.path
    refuse_place(path)
    destination.refuse_standing()
    with explained(path, VolumeError), replacing(path) as new:
        place = allocate(
            new, destination.dataset, Layout(array.shape, array.dtype, attributes or {})
        )
        with descriptor(new) as file:
            write_at(file, place, np.ascontiguousarray(array))


def allocate(path: Path, dataset: str, layout: Layout) -> int:
    """Create an HDF5 file with room for its dataset, synced; return the byte at which the data begin."""
    # HDF5 crashes at exit when it cannot write its header, so that there must be room before it begins.
    _reserve(path, HEADER + layout.nbytes)
    try:
        with h5py.File(path, "w") as file:
            place = _create(file, dataset, layout)
    except RuntimeError as error:  # of a disk that fails when the file is closed
        raise OSError(errno.EIO, reason(error)) from error
    _reserve(path, max(path.stat().st_size, place + layout.nbytes))
    return place


def _reserve(path: Path, size: int) -> None:
    """Create a file of at least so many bytes, all allocated on the disk, synced."""
    opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.posix_fallocate(opened, 0, size)
        os.fsync(opened)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise VolumeError(f"{path.parent}: no room on the disk for {readable(size)}") from error
    finally:
        os.close(opened)


def write_at(file: int, place: int, array: Array) -> None:
    """Write all bytes of a C-contiguous array at a place in the file."""
    rest = array.reshape(-1).view(np.uint8).data
    while rest:
        written = os.pwrite(file, rest, place)
        place, rest = place + written, rest[written:]


@contextmanager
def descriptor(path: Path) -> Iterator[int]:
    """Yield a descriptor of the file, open for reading and writing, without HDF5."""
    opened = os.open(path, os.O_RDWR)
    try:
        yield opened
    finally:
        os.close(opened)


def _create(file: h5py.File, name: str, layout: Layout) -> int:
    parent, _, last = name.strip("/").rpartition("/")
    group = file.require_group(parent) if parent else file
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_layout(h5py.h5d.CONTIGUOUS)
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    properties.set_obj_track_times(False)  # the same content, the same bytes
    kind = h5py.h5t.py_create(layout.dtype, logical=True)
    space = h5py.h5s.create_simple(layout.shape)
    made = h5py.h5d.create(group.id, last.encode(), kind, space, properties)
    for key, value in layout.attributes.items():
        h5py.Dataset(made).attrs[key] = value
    return int(made.get_offset())


FEW = 64  # rows of a block up to which Python writes one by one; more are written by compiled code


class Hdf5Output(JournaledOutput):
    """A new HDF5 file with one contiguous dataset (C, Z, Y, X)."""

    def __init__(
        self, destination: Destination, spec: OutputSpec, *, attached: bool = False
    ) -> None:
        self._file, self._place = -1, 0
        super().__init__(destination, spec, attached=attached)

    def close(self) -> None:
        """Close the files; the journal stays, so that writing can be resumed."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1
        super().close()

    def _create(self) -> Mapping[str, Any]:
        self._scrap()
        layout = Layout(self.spec.shape, self.spec.dtype, self.spec.attributes)
        with replacing(self._partial) as new:
            place = allocate(new, self.destination.dataset, layout)
        return {"place": place, "header": self._header(place)}

    def _reopen(self, head: Mapping[str, Any]) -> None:
        place, size = head.get("place"), self._partial.stat().st_size
        if not isinstance(place, int) or not 0 < place <= size:
            raise VolumeError(f"{self._journal.path} is damaged; remove it to start anew")
        if size < place + self.spec.nbytes or self._header(place) != head.get("header"):
            raise self._changed()
        self._place = place
        self._file = os.open(self._partial, os.O_RDWR)
        write_rows.compile()

    def _scrap(self) -> None:
        self._partial.unlink(missing_ok=True)

    def _put(self, region: Region, data: Array) -> int:
        places = self._places(region)
        rows = data.reshape(len(places), -1)
        size, many = rows[0].nbytes, len(places) > FEW
        done = write_rows(self._file, data.ctypes.data, size, places) if many else 0
        for place, row in zip(places[done:], rows[done:], strict=True):
            write_at(self._file, int(place), row)  # goes on, or says what is wrong
        os.fdatasync(self._file)
        return crc32(data.data)

    def _checksum(self, region: Region) -> int:
        lower, upper = region
        sizes = [b - a for a, b in zip(lower, upper, strict=True)]
        block = np.empty((self.spec.shape[0], *sizes), self.spec.dtype)
        places = self._places(region)
        for place, row in zip(places, block.reshape(len(places), -1), strict=True):
            row[...] = np.frombuffer(os.pread(self._file, row.nbytes, int(place)), row.dtype)
        return crc32(block.data)

    def _settle(self) -> None:
        os.fsync(self._file)

    def _replace(self) -> None:
        self._partial.replace(self.path)

    def _header(self, place: int) -> int:
        """Return the checksum of all bytes that are not the dataset's."""
        with self._partial.open("rb") as file:
            before = file.read(place)
            file.seek(place + self.spec.nbytes)
            return crc32(file.read(), crc32(before))

    def _places(self, region: Region) -> NDArray[np.int64]:
        """Return where the contiguous pieces of a block begin in the file, in the block's order."""
        images, depth, height, width = self.spec.shape
        (z0, y0, x0), (z1, y1, x1) = region
        rows = np.arange(z0, z1)[:, None] * height + np.arange(y0, y1)
        if x1 - x0 == width:
            rows = rows[:1, :1] if y1 - y0 == height else rows[:, :1]
        starts = np.arange(images)[:, None] * (depth * height) + rows.reshape(-1)
        return self._place + (starts.reshape(-1) * width + x0) * self.spec.dtype.itemsize
