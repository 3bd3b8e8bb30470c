"""Write a large HDF5 dataset block by block so that a killed process can go on where it stopped."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from znnpy.data.contiguous import Layout, allocate, write_at
from znnpy.data.journal import Region
from znnpy.data.journaled import JournaledOutput
from znnpy.data.outputs import OutputSpec
from znnpy.data.volume import Array, Triple
from znnpy.errors import VolumeError


class BlockWriter(JournaledOutput):
    """A new HDF5 file with one contiguous dataset (C, Z, Y, X)."""

    def __init__(
        self,
        path: str | Path,
        dataset: str,
        spec: OutputSpec,
        overwrite: bool = False,
        *,
        attached: bool = False,
    ) -> None:
        self._file, self._place = -1, 0
        super().__init__(path, dataset, spec, overwrite, attached=attached)

    def close(self) -> None:
        """Close the files; the journal stays, so that writing can go on later."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1
        super().close()

    def _create(self) -> Mapping[str, Any]:
        self._scrap()
        layout = Layout(self.spec.shape, self.spec.dtype, self.spec.attributes)
        beside = self.path.with_name(f".{self.path.name}.tmp")
        try:
            place = allocate(beside, {self._dataset: layout})[self._dataset]
            beside.replace(self._partial)
        finally:
            beside.unlink(missing_ok=True)
        return {"place": place, "header": self._header(place)}

    def _reopen(self, head: Mapping[str, Any]) -> None:
        place, size = head.get("place"), self._partial.stat().st_size
        if not isinstance(place, int) or not 0 < place <= size:
            raise VolumeError(f"{self._journal.path} is damaged; remove it to start anew")
        if size < place + self.spec.nbytes or self._header(place) != head.get("header"):
            raise self._changed()
        self._place = place
        self._file = os.open(self._partial, os.O_RDWR)

    def _scrap(self) -> None:
        self._partial.unlink(missing_ok=True)

    def _put(self, region: Region, data: Array) -> int:
        for place, run in self._runs(region[0], data):
            write_at(self._file, place, run)
        os.fdatasync(self._file)
        return crc32(data.data)

    def _checksum(self, region: Region) -> int:
        lower, upper = region
        sizes = [b - a for a, b in zip(lower, upper, strict=True)]
        block = np.empty((self.spec.shape[0], *sizes), self.spec.dtype)
        for place, run in self._runs(lower, block):
            run[...] = np.frombuffer(os.pread(self._file, run.nbytes, place), run.dtype)
        return crc32(block.data)

    def _settle(self) -> None:
        os.fsync(self._file)

    def _replace(self) -> None:
        self._partial.replace(self.path)

    def _header(self, place: int) -> int:
        """Checksum of all bytes that are not the dataset's."""
        with self._partial.open("rb") as file:
            before = file.read(place)
            file.seek(place + self.spec.nbytes)
            return crc32(file.read(), crc32(before))

    def _runs(self, lower: Triple, block: Array) -> Iterator[tuple[int, Array]]:
        """Pieces of a C-contiguous block that lie in one piece in the file, as 1-D views."""
        _, depth, height, width = self.spec.shape
        item = self.spec.dtype.itemsize
        axes = 3 if block.shape[3] < width else 2 if block.shape[2] < height else 1
        for index in np.ndindex(block.shape[:axes]):
            c, z, y = (*index, 0, 0)[:3]
            row = ((c * depth + lower[0] + z) * height + lower[1] + y) * width + lower[2]
            yield self._place + row * item, block[index].reshape(-1)
