"""Write a large HDF5 dataset block by block so that a killed process can go on where it stopped.

A block is acknowledged once its bytes and then its journal record are on the disk. The file stands
beside its place as `.partial` until all are written; the journal vanishes when it has moved.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import TracebackType
from typing import Self
from zlib import crc32

import numpy as np

from znnpy.data.contiguous import Layout, allocate, sync_folder, write_at
from znnpy.data.journal import Journal, Region, refuse_other
from znnpy.data.outputs import Finished, OutputSpec, journal_of, partial_of
from znnpy.data.volume import Array, Triple
from znnpy.errors import ShapeError, VolumeError

REMEDY = "Repeat the first command, add --overwrite to start anew, or name another file"


class BlockWriter:
    """A new HDF5 file with one dataset (C, Z, Y, X), filled by `write` in any order.

    Fulfils `outputs.BlockOutput`. The same spec and attributes give the same bytes, whatever
    happened between.
    """

    def __init__(
        self, path: str | Path, dataset: str, spec: OutputSpec, overwrite: bool = False
    ) -> None:
        self.path, self.spec = Path(path), spec
        self._partial, self._dataset, self._file = partial_of(self.path), dataset, -1
        refuse_output(self.path)
        self._journal = Journal(journal_of(self.path))
        self._done: set[Region] = set()
        try:
            self._finish_moving(dataset)
            self._refuse(overwrite)
            self._place = self._resumed() if self._journal.head else self._begun()
            self._file = os.open(self._partial, os.O_RDWR)
            self._recover()
        except BaseException:
            self.close()
            if self._journal.head is None and not self._journal.completed:
                self._journal.path.unlink(missing_ok=True)
            raise

    @property
    def done(self) -> AbstractSet[Region]:
        """Blocks that are on the disk."""
        return self._done

    def write(self, lower: Triple, block: Array) -> None:
        """Write a block (C, z, y, x) with its first voxel at `lower`; on the disk on return."""
        upper = self._upper(lower, block.shape)
        data = np.ascontiguousarray(block, self.spec.dtype)
        for place, run in self._runs(lower, data):
            write_at(self._file, place, run)
        os.fdatasync(self._file)
        self._journal.add((lower, upper), crc32(data.data))
        self._done.add((lower, upper))

    def finish(self) -> None:
        """All blocks are written: move the file to its place, remove the journal, close."""
        wanted = self.spec.blocks()
        missing = [region for region in wanted if region not in self._done]
        if missing:
            raise VolumeError(
                f"{self.path}: {len(missing)} of {len(wanted)} blocks were not written"
            )
        os.fsync(self._file)
        self._journal.complete()
        self._move()
        self.close()

    def close(self) -> None:
        """Close the files; the journal stays, so that writing can go on later."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1
        self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _move(self) -> None:
        self._partial.replace(self.path)
        sync_folder(self.path.parent)
        self._journal.remove()
        sync_folder(self.path.parent)

    def _finish_moving(self, dataset: str) -> None:
        """A process was killed when all was written, but the journal still there."""
        head = self._journal.head
        if not self._journal.completed or head is None:
            return
        if self._partial.exists():
            self._move()
        else:
            self._journal.remove()
        refuse_other(self.path, head, self.spec.head(dataset), REMEDY)
        raise Finished(f"{self.path} was finished by an earlier process")

    def _refuse(self, overwrite: bool) -> None:
        if self.path.exists() and not overwrite:
            raise VolumeError(f"{self.path} exists already; name another file, or add --overwrite")
        head = self._journal.head
        if head is None:
            return
        if overwrite and not self._partial.exists():
            self._journal.head = None
            return
        try:
            refuse_other(self._partial, head, self.spec.head(self._dataset), REMEDY)
        except VolumeError:
            if not overwrite:
                raise
            self._journal.head = None

    def _begun(self) -> int:
        """A new file, then the journal's head: with a head the file is there, whole."""
        self._journal.forget()
        self._partial.unlink(missing_ok=True)
        layout = Layout(self.spec.shape, self.spec.dtype, self.spec.attributes)
        beside = self.path.with_name(f".{self.path.name}.tmp")
        try:
            place = allocate(beside, {self._dataset: layout})[self._dataset]
            beside.replace(self._partial)
        finally:
            beside.unlink(missing_ok=True)
        sync_folder(self.path.parent)
        header = self._header(place)
        self._journal.begin({**self.spec.head(self._dataset), "place": place, "header": header})
        return place

    def _resumed(self) -> int:
        head = self._journal.head or {}
        place = head.get("place")
        if not self._partial.exists():
            raise VolumeError(
                f"{self._partial} is gone, only {self._journal.path} is left; remove it to start anew"
            )
        if not isinstance(place, int) or not 0 < place <= self._partial.stat().st_size:
            raise VolumeError(f"{self._journal.path} is damaged; remove it to start anew")
        size = self._partial.stat().st_size
        if size < place + self.spec.nbytes or self._header(place) != head.get("header"):
            raise VolumeError(
                f"{self._partial} was cut or changed outside its blocks; remove it and "
                f"{self._journal.path} to start anew"
            )
        return place

    def _header(self, place: int) -> int:
        """Checksum of all bytes that are not the dataset's."""
        with self._partial.open("rb") as file:
            before = file.read(place)
            file.seek(place + self.spec.nbytes)
            return crc32(file.read(), crc32(before))

    def _recover(self) -> None:
        """Blocks count as done when they are of the grid and their bytes match."""
        grid = set(self.spec.blocks()) if self._journal.done else set()
        for region, checksum in self._journal.done.items():
            if region in grid and crc32(self._read(*region).data) == checksum:
                self._done.add(region)

    def _read(self, lower: Triple, upper: Triple) -> Array:
        sizes = [b - a for a, b in zip(lower, upper, strict=True)]
        block = np.empty((self.spec.shape[0], *sizes), self.spec.dtype)
        for place, run in self._runs(lower, block):
            run[...] = np.frombuffer(os.pread(self._file, run.nbytes, place), run.dtype)
        return block

    def _runs(self, lower: Triple, block: Array) -> Iterator[tuple[int, Array]]:
        """Pieces of a C-contiguous block that lie in one piece in the file, as 1-D views."""
        _, depth, height, width = self.spec.shape
        item = self.spec.dtype.itemsize
        axes = 3 if block.shape[3] < width else 2 if block.shape[2] < height else 1
        for index in np.ndindex(block.shape[:axes]):
            c, z, y = (*index, 0, 0)[:3]
            row = ((c * depth + lower[0] + z) * height + lower[1] + y) * width + lower[2]
            yield self._place + row * item, block[index].reshape(-1)

    def _upper(self, lower: Triple, shape: tuple[int, ...]) -> Triple:
        whole = self.spec.shape
        fits = len(shape) == 4 and shape[0] == whole[0] and min(shape) > 0
        upper = tuple(a + n for a, n in zip(lower, shape[1:], strict=True)) if fits else ()
        if not fits or min(lower) < 0 or any(b > n for b, n in zip(upper, whole[1:], strict=True)):
            raise ShapeError(f"{self.path}: block {shape} at {lower} does not fit into {whole}")
        return (upper[0], upper[1], upper[2])


def refuse_output(path: Path) -> None:
    """VolumeError where no file can be written, before anything is computed."""
    folder = path.parent
    if path.is_dir():
        raise VolumeError(f"{path} is a folder; name a file in it")
    if not folder.is_dir():
        raise VolumeError(f"{path} cannot be written: there is no folder {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise VolumeError(f"{path} cannot be written: no permission to write into {folder}")
