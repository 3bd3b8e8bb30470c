"""Base of outputs whose values are one run of bytes in a file, where blocks are written by `pwrite`."""

from __future__ import annotations

import errno
import os
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.data.file_rows import write_rows

from znnpy.atomic_files import explained, replacing
from znnpy.data.process_memory import readable
from znnpy.data.volume import Array, Triple
from znnpy.data.writing.block_output import OutputSpec
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.journal import Region
from znnpy.data.writing.journaled_output import JournaledOutput
from znnpy.errors import VolumeError, WriteError

WHOLE = 1 << 26  # bytes of a block of an array that is in memory


def reserve(path: Path, size: int) -> None:
    """Create or extend a file to at least so many bytes, all allocated on the disk, synced; WriteError without room."""
    opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.posix_fallocate(opened, 0, size)
        os.fsync(opened)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise WriteError(f"{path.parent}: no room on the disk for {readable(size)}") from error
    finally:
        os.close(opened)


def behind(path: Path, header: bytes, size: int) -> int:
    """Create a file of a header and room for so many bytes, synced; return where these begin."""
    reserve(path, len(header) + size)
    with path.open("r+b") as file:
        file.write(header)
    return len(header)


def write_at(file: int, place: int, array: Array) -> None:
    """Write all bytes of a C-contiguous array at a place in the file."""
    rest = array.reshape(-1).view(np.uint8).data
    while rest:
        written = os.pwrite(file, rest, place)
        place, rest = place + written, rest[written:]


FEW = 64  # rows of a block up to which Python writes one by one; more are written by compiled code


class FlatOutput(JournaledOutput):
    """A new file whose values (C, Z, Y, X), not compressed, are one run of bytes of a known place.

    A format implements `_allocated`, and may extend `_replace`.
    """

    def __init__(
        self, destination: Destination, spec: OutputSpec, *, attached: bool = False
    ) -> None:
        self._file, self._place = -1, 0
        self._further: list[
            tuple[int, int]
        ] = []  # places and bytes of values that are made at the end
        super().__init__(destination, spec, attached=attached)

    def close(self) -> None:
        """Close the files; the journal stays, so that writing can be resumed."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1
        super().close()

    def _create(self) -> Mapping[str, Any]:
        self._refuse_offsets()
        self._scrap()
        with replacing(self._partial) as new:
            place = self._allocated(new)
        head = {"place": place, "header": self._header(place)}
        return {**head, "further": self._further} if self._further else head

    @abstractmethod
    def _allocated(self, new: Path) -> int:
        """Create a file with room for all values, synced; return the byte at which they begin."""

    def _reopen(self, head: Mapping[str, Any]) -> None:
        place, size = head.get("place"), self._partial.stat().st_size
        if not isinstance(place, int) or not 0 < place <= size:
            raise VolumeError(f"{self._journal.path} is damaged; remove it to start anew")
        self._further = [(int(a), int(n)) for a, n in head.get("further", ())]
        ends = [place + self.spec.nbytes, *(a + n for a, n in self._further)]
        if size < max(ends) or self._header(place) != head.get("header"):
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
        """Return the checksum of all bytes that are no values."""
        found, at = 0, 0
        with self._partial.open("rb") as file:
            for start, size in [(place, self.spec.nbytes), *self._further]:
                file.seek(at)
                found, at = crc32(file.read(start - at), found), start + size
            file.seek(at)
            return crc32(file.read(), found)

    def _places(self, region: Region) -> NDArray[np.int64]:
        """Return where the contiguous pieces of a block begin in the file, in the block's order."""
        images, depth, height, width = self.spec.shape
        (z0, y0, x0), (z1, y1, x1) = region
        rows = np.arange(z0, z1)[:, None] * height + np.arange(y0, y1)
        if x1 - x0 == width:
            rows = rows[:1, :1] if y1 - y0 == height else rows[:, :1]
        starts = np.arange(images)[:, None] * (depth * height) + rows.reshape(-1)
        return self._place + (starts.reshape(-1) * width + x0) * self.spec.dtype.itemsize


def write_flat(
    kind: type[FlatOutput],
    destination: Destination,
    array: Array,
    attributes: Mapping[str, Any] | None = None,
) -> None:
    """Write an array (Z, Y, X) or (C, Z, Y, X) that is in memory, atomically; WriteError when the disk fails."""
    four = array if array.ndim == 4 else array[None]
    c, depth, height, width = four.shape
    step = max(1, min(depth, WHOLE // max(1, four[:, :1].nbytes)))
    block: Triple = (step, height, width)
    spec = OutputSpec((c, depth, height, width), array.dtype, block, attributes or {})
    destination.refuse_standing()
    # Whatever was begun there by another job makes room.
    out = kind(replace(destination, overwrite=True), spec)
    try:
        with explained(destination.path, WriteError), out:
            for lower, upper in spec.blocks():
                out.write(lower, four[:, lower[0] : upper[0]])
            out.finish()
    except BaseException:
        out.discard()
        raise


def narrowed(labels: Array) -> Array:
    """Return labels in the smallest unsigned type that holds them: other programs read few of the wide ones."""
    highest = int(labels.max()) if labels.size else 0
    return labels.astype(np.min_scalar_type(highest)) if labels.dtype.kind == "u" else labels
