"""Base of outputs that are folders of chunks: metadata, files of each block, coarser levels, the final move."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from typing import Any
from zlib import crc32

import numpy as np

from znnpy.atomic_files import beside, explained, sync
from znnpy.data.volume import Array, Triple, Triple64
from znnpy.data.writing.block_output import OutputSpec
from znnpy.data.writing.chunk_folders import checksum_of, chunk_size, read_bytes, remove, triple_of
from znnpy.data.writing.destination import Destination, partial_of
from znnpy.data.writing.folder_files import FolderFiles, LocalFiles, RemoteFiles, fetched
from znnpy.data.writing.journal import Region
from znnpy.data.writing.journaled_output import JournaledOutput
from znnpy.data.writing.pyramid import Level, coarser, levels_of
from znnpy.errors import ShapeError, VolumeError, WriteError
from znnpy.registry import resolved


class FolderOutput(JournaledOutput):
    """A new folder of an image in chunks, and of coarser levels of it, which are made when all blocks are written.

    With `channels` the array is (C, Z, Y, X), else (Z, Y, X) and C is 1; whole numbers without channels are labels. A
    format implements `_documents`, `_files`, `_encoded` and `_stored`.
    """

    DTYPES: Container[str] | None = None
    """What the format stores, where that is not every dtype."""

    def __init__(
        self,
        destination: Destination,
        spec: OutputSpec,
        *,
        channels: bool = True,
        attached: bool = False,
    ) -> None:
        if self.DTYPES is not None and str(spec.dtype) not in self.DTYPES:
            title = destination.format.title
            raise VolumeError(
                f"{destination.path}: {title} has no {spec.dtype}; name a folder .zarr"
            )
        self._channels = channels and spec.channels
        if not self._channels and spec.shape[0] != 1:
            path = destination.path
            raise ShapeError(f"{path}: {spec.shape[0]} channels for an array (z, y, x)")
        self._resolution = triple_of(spec.attributes.get("resolution", (1.0, 1.0, 1.0)))
        self._offset = triple_of(spec.attributes.get("offset", (0.0, 0.0, 0.0)))
        self._levels = levels_of(spec.shape, self._resolution)
        partial = partial_of(destination.path)
        self._remote = RemoteFiles(destination.url) if destination.url else None
        self._chunk_files: FolderFiles = self._remote or LocalFiles(partial)
        super().__init__(destination, spec, attached=attached)

    @abstractmethod
    def _documents(self) -> dict[str, bytes]:
        """Return all files of metadata by path in the folder."""

    @abstractmethod
    def _files(self, level: int, region: Region) -> Iterator[tuple[str, Region]]:
        """Yield the path of each file of a block, and the voxels that it holds."""

    @abstractmethod
    def _encoded(self, level: int, region: Region, data: Array) -> bytes:
        """Return a file of values (c, z, y, x); empty where it need not be there."""

    @abstractmethod
    def _stored(self, level: int) -> Any:
        """Return an object whose `[c, z, y, x]`, of slices, are the values of a level that was written."""

    def _first(self, level: int) -> Triple64:
        """Return where the centre of a level's first voxel lies, z, y, x."""
        factors = self._levels[level].factors
        moved = zip(self._offset, self._resolution, factors, strict=True)
        z, y, x = (at + (factor - 1) / 2 * size for at, size, factor in moved)
        return (z, y, x)

    @property
    def _group(self) -> str:
        """The path in the folder at which the arrays of levels lie."""
        return self.destination.dataset.strip("/")

    @property
    def _labels(self) -> bool:
        return not self._channels and self.spec.dtype.kind in "iub"

    def _create(self) -> Mapping[str, Any]:
        self._refuse_offsets()
        if self._partial.is_dir() and not resolved(self.destination.format.owns)(self._partial):
            raise VolumeError(f"{self._partial} is in the way: a folder of something else")
        if self._remote and self.destination.overwrite and self.destination.stands():
            self._remote.clear()
        new = beside(self._partial)
        for old in (new, self._partial):
            remove(old)
        documents = self._documents()
        for name, text in documents.items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            (new / name).write_bytes(text)
            sync(new / name)
        for folder in {(new / name).parent for name in documents}:
            sync(folder)
        new.rename(self._partial)
        return {"metadata": checksum_of(documents)}

    def _reopen(self, head: Mapping[str, Any]) -> None:
        found = {name: read_bytes(self._partial / name) for name in self._documents()}
        if checksum_of(found) != head.get("metadata"):
            raise self._changed()

    def _scrap(self) -> None:
        remove(self._partial)
        if self._remote:
            self._remote.clear()

    def _put(self, region: Region, data: Array) -> int:
        return self._store(0, region, data)

    def _store(self, level: int, region: Region, data: Array) -> int:
        found = 0
        for name, (lower, upper) in self._files(level, region):
            at = tuple(
                slice(a - first, b - first)
                for a, b, first in zip(lower, upper, region[0], strict=True)
            )
            text = self._encoded(level, (lower, upper), data[(slice(None), *at)])
            if text:
                self._chunk_files.put(name, text)
            else:
                self._chunk_files.remove(name)
            found = crc32(text, found)
        return found

    def _checksum(self, region: Region) -> int:
        found = 0
        for name, _ in self._files(0, region):
            found = crc32(self._chunk_files.get(name), found)
        return found

    def _settle(self) -> None:
        for number in range(1, len(self._levels)):
            for region in self._grid(number):
                self._store(number, region, self._made(number, region))

    def _made(self, number: int, region: Region) -> Array:
        """Return a block of a level, made of the level before."""
        if self._remote is None:
            return self._coarser(self._levels[number], self._stored(number - 1), region)
        with fetched(self._remote, self._sources(number, region), self._partial):
            return self._coarser(self._levels[number], self._stored(number - 1), region)

    def _grid(self, number: int) -> list[Region]:
        """Return the blocks of a level."""
        return replace(self.spec, shape=self._levels[number].shape, phase=(0, 0, 0)).blocks()

    def _sources(self, number: int, region: Region) -> list[str]:
        """Return the files of the level before, by which a block of a level is made."""
        step = self._levels[number].step
        lower, upper = ([at * by for at, by in zip(end, step, strict=True)] for end in region)
        return [
            name
            for low, high in self._grid(number - 1)
            if all(a < to and b > at for a, b, at, to in zip(low, high, lower, upper, strict=True))
            for name, _ in self._files(number - 1, (low, high))
        ]

    def _coarser(self, level: Level, stored: Any, region: Region) -> Array:
        """Return a block of a level, made a few planes at a time."""
        lower, upper = region
        sizes = [b - a for a, b in zip(lower, upper, strict=True)]
        found = np.empty((level.shape[0], *sizes), self.spec.dtype)
        y, x = (slice(lower[i] * level.step[i], upper[i] * level.step[i]) for i in (1, 2))
        planes = max(1, chunk_size(self.spec.block[0]) // level.step[0])
        for first in range(lower[0], upper[0], planes):
            last = min(first + planes, upper[0])
            z = slice(first * level.step[0], last * level.step[0])
            part = coarser(stored[:, z, y, x], level.step, labels=self._labels)
            found[:, first - lower[0] : last - lower[0]] = part
        return found

    def _replace(self) -> None:
        if self._remote:
            self._publish(self._remote)
            return
        aside = self.path.with_name(f".{self.path.name}.old")
        if self.path.exists():
            remove(aside)
            self.path.rename(aside)
        self._partial.rename(self.path)
        sync(self.path.parent)
        remove(aside)

    def _publish(self, remote: RemoteFiles) -> None:
        """Put the metadata, those last by which readers know a volume: without them there is none."""
        # Those that were begun with: another job may find all written, and only finish it.
        found = [path for path in sorted(self._partial.rglob("*")) if path.is_file()]
        for path in sorted(found, key=lambda path: len(path.parts), reverse=True):
            remote.put(path.relative_to(self._partial).as_posix(), read_bytes(path))
        remove(self._partial)

    def _chunks(self, level: int, region: Region) -> Iterator[tuple[Triple, Region]]:
        """Yield the number z, y, x of each chunk of a block, and the voxels that it holds."""
        self._refuse_off_grid(region[0])
        steps = [chunk_size(size) for size in self.spec.block]
        axes = [range(a // step, -(-b // step)) for a, b, step in zip(*region, steps, strict=True)]
        for z, y, x in itertools.product(*axes):
            low = [i * step for i, step in zip((z, y, x), steps, strict=True)]
            ends = zip(low, steps, self._levels[level].shape[1:], strict=True)
            high = [min(a + step, n) for a, step, n in ends]
            yield (z, y, x), ((low[0], low[1], low[2]), (high[0], high[1], high[2]))

    def _refuse_off_grid(self, lower: Triple) -> None:
        if any(at % step for at, step in zip(lower, self.spec.block, strict=True)):
            raise ShapeError(
                f"{self.path}: a block begins at {lower}, blocks are of {self.spec.block} voxels"
            )


def write_folder(
    kind: type[FolderOutput],
    destination: Destination,
    array: Array,
    attributes: Mapping[str, Any] | None = None,
    block: Triple = (256, 256, 256),
) -> None:
    """Write an array (Z, Y, X) or (C, Z, Y, X) that is in memory, atomically; WriteError when the disk fails."""
    four = array if array.ndim == 4 else array[None]
    z, y, x = (min(a, b) for a, b in zip(block, four.shape[1:], strict=True))
    c, depth, height, width = four.shape
    spec = OutputSpec((c, depth, height, width), array.dtype, (z, y, x), attributes or {})
    destination.refuse_standing()
    # Whatever was begun there by another job makes room.
    out = kind(replace(destination, overwrite=True), spec, channels=array.ndim == 4)
    try:
        with explained(destination.path, WriteError), out:
            for lower, upper in spec.blocks():
                at = tuple(slice(a, b) for a, b in zip(lower, upper, strict=True))
                out.write(lower, four[(slice(None), *at)])
            out.finish()
    except BaseException:
        out.discard()
        raise
