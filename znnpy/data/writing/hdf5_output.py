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

import h5py
import numpy as np

from znnpy.atomic_files import explained, replacing
from znnpy.data.volume import Array
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.flat_output import FlatOutput, reserve, write_at
from znnpy.data.writing.preflight import refuse_place
from znnpy.dataset_path import as_text
from znnpy.errors import WriteError, reason

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
    `offset` in nanometres, z, y, x. Raises VolumeError where something is in the way, WriteError when the disk fails.
    """
    path = destination.path
    refuse_place(path)
    destination.refuse_standing()
    with explained(path, WriteError), replacing(path) as new:
        place = allocate(
            new, destination.dataset, Layout(array.shape, array.dtype, attributes or {})
        )
        with descriptor(new) as file:
            write_at(file, place, np.ascontiguousarray(array))


def allocate(path: Path, dataset: str, layout: Layout) -> int:
    """Create an HDF5 file with room for its dataset, synced; return the byte at which the data begin."""
    # HDF5 crashes at exit when it cannot write its header, so that there must be room before it begins.
    reserve(path, HEADER + layout.nbytes)
    try:
        with h5py.File(path, "w") as file:
            place = _create(file, dataset, layout)
    except RuntimeError as error:  # of a disk that fails when the file is closed
        raise OSError(errno.EIO, reason(error)) from error
    reserve(path, max(path.stat().st_size, place + layout.nbytes))
    return place


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
        h5py.Dataset(made).attrs[key] = as_text(value) if isinstance(value, str) else value
    return int(made.get_offset())


class Hdf5Output(FlatOutput):
    """A new HDF5 file with one contiguous dataset (C, Z, Y, X)."""

    KEEPS_MEANING = True

    def _allocated(self, new: Path) -> int:
        shape = self.spec.shape if self.spec.channels else self.spec.shape[1:]
        layout = Layout(shape, self.spec.dtype, self.spec.attributes)
        return allocate(new, self.destination.dataset, layout)
