"""Writes a large HDF5 dataset block by block so that a killed process can resume where it stopped."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.data.file_rows import write_rows

from znnpy.atomic_files import replacing
from znnpy.data.volume import Array
from znnpy.data.writing.contiguous_hdf5 import Layout, allocate, write_at
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.journal import Region
from znnpy.data.writing.journaled_output import JournaledOutput
from znnpy.data.writing.protocol import OutputSpec
from znnpy.errors import VolumeError

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
