"""Writes a large Zarr image block by block so that a killed process can resume where it stopped.

Format 3 with OME metadata 0.5. Each block is one shard, so one file, of smaller chunks; it is written
beside its place, synced and renamed, and belongs to no other block.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import zarr
from zarr.codecs import BloscCodec

from znnpy.atomic_files import beside, explained, sync, write_whole
from znnpy.data.volume import Array, Triple
from znnpy.data.writing.block_output import OutputSpec
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.journal import Region
from znnpy.data.writing.journaled_output import JournaledOutput
from znnpy.data.zarr import ome
from znnpy.data.zarr.store import is_zarr
from znnpy.errors import ShapeError, VolumeError

LEVEL = "0"
CHUNK = 64
"""Voxels along each axis of a chunk, as near as the block's size allows."""


class ZarrOutput(JournaledOutput):
    """A new Zarr folder with an image of one level, array DATASET/0, or 0 for an empty name.

    With `channels` the array is (C, Z, Y, X), else (Z, Y, X) and C is 1. The attributes `resolution`
    and `offset` (z, y, x, nanometres) become OME's scale and translation; all stay attributes of the
    array. Blocks are compressed by Blosc without loss.
    """

    def __init__(
        self,
        destination: Destination,
        spec: OutputSpec,
        *,
        channels: bool = True,
        attached: bool = False,
    ) -> None:
        path, dataset = destination.path, destination.dataset
        self._group = dataset.strip("/")
        self._channels = channels and spec.channels
        if not self._channels and spec.shape[0] != 1:
            raise ShapeError(f"{path}: {spec.shape[0]} channels for an array (z, y, x)")
        self._lasting: set[Path] = set()  # folders that this process found synced in theirs
        self._array = "/".join(part for part in (self._group, LEVEL) if part)
        super().__init__(destination, spec, attached=attached)

    def _create(self) -> Mapping[str, Any]:
        if self._partial.is_dir() and not is_zarr(self._partial):
            raise VolumeError(f"{self._partial} is in the way: a folder of something else")
        new = beside(self._partial)
        for old in (new, self._partial):
            _remove(old)
        documents = self._documents()
        for name, text in documents.items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            (new / name).write_bytes(text)
            sync(new / name)
        for folder in {(new / name).parent for name in documents}:
            sync(folder)
        new.rename(self._partial)
        return {"metadata": _checksum_of(documents)}

    def _reopen(self, head: Mapping[str, Any]) -> None:
        names = self._documents()
        found = {name: _read(self._partial / name) for name in names}
        if _checksum_of(found) != head.get("metadata"):
            raise self._changed()
        self._template = {"zarr.json": found[f"{self._array}/zarr.json"]}

    def _scrap(self) -> None:
        _remove(self._partial)

    def _put(self, region: Region, data: Array) -> int:
        shard = self._encoded(region, data)
        place = self._place(region[0])
        if shard:
            self._make(place.parent)
            write_whole(place, lambda file: file.write(shard))
        elif place.exists():
            place.unlink()
            sync(place.parent)
        return crc32(shard)

    def _make(self, folder: Path) -> None:
        """Create a folder of shards durably, whoever made it, with those above it up to the array."""
        if folder in self._lasting or folder == self._partial:
            return
        self._make(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)
        self._lasting.add(folder)

    def _checksum(self, region: Region) -> int:
        return crc32(_read(self._place(region[0])))

    def _replace(self) -> None:
        aside = self.path.with_name(f".{self.path.name}.old")
        if self.path.exists():
            _remove(aside)
            self.path.rename(aside)
        self._partial.rename(self.path)
        sync(self.path.parent)
        _remove(aside)

    def _encoded(self, region: Region, data: Array) -> bytes:
        """Return the shard of one block, empty if it holds nothing but the fill value."""
        memory: dict[str, Any] = {}
        store = zarr.storage.MemoryStore(memory)
        memory["zarr.json"] = zarr.core.buffer.cpu.Buffer.from_bytes(self._template["zarr.json"])
        array = zarr.open_array(store, mode="r+")
        z, y, x = (slice(a, b) for a, b in zip(*region, strict=True))
        if self._channels:
            array[:, z, y, x] = data
        else:
            array[z, y, x] = data[0]
        shards = [value for key, value in memory.items() if key != "zarr.json"]
        return bytes(shards[0].to_bytes()) if shards else b""

    def _place(self, lower: Triple) -> Path:
        if any(at % step for at, step in zip(lower, self.spec.block, strict=True)):
            raise ShapeError(
                f"{self.path}: a block begins at {lower}, blocks are of {self.spec.block} voxels"
            )
        numbers = [at // step for at, step in zip(lower, self.spec.block, strict=True)]
        numbers = [0, *numbers] if self._channels else numbers
        return Path(self._partial, self._array, "c", *map(str, numbers))

    def _documents(self) -> dict[str, bytes]:
        """Return all metadata files by path in the folder."""
        parts = self._group.split("/") if self._group else []
        groups = ["/".join(parts[:count]) for count in range(len(parts) + 1)]
        made = {name: _group_document({}) for name in groups}
        given = self.spec.attributes
        place = (given.get("resolution", (1, 1, 1)), given.get("offset", (0, 0, 0)))
        name = parts[-1] if parts else self.path.stem
        made[self._group] = _group_document(
            ome.multiscales(name, LEVEL, self._channels, place[0], place[1])
        )
        made[self._array] = self._array_document()
        return {f"{key}/zarr.json".lstrip("/"): text for key, text in made.items()}

    def _array_document(self) -> bytes:
        spec, first = self.spec, 0 if self._channels else 1
        shards = (spec.shape[0], *spec.block)
        chunks = (1, *(_chunk(size) for size in spec.block))
        memory: dict[str, Any] = {}
        zarr.create_array(
            zarr.storage.MemoryStore(memory),
            shape=spec.shape[first:],
            dtype=spec.dtype,
            chunks=chunks[first:],
            shards=shards[first:],
            compressors=BloscCodec(
                cname="zstd", clevel=3, shuffle="shuffle", typesize=spec.dtype.itemsize
            ),
            fill_value=_fill(spec.dtype),
            attributes=_plain(spec.attributes),
            dimension_names=("c", "z", "y", "x")[first:],
        )
        return bytes(memory["zarr.json"].to_bytes())


def write_zarr(
    destination: Destination,
    array: Array,
    attributes: Mapping[str, Any] | None = None,
    *,
    block: Triple = (256, 256, 256),
) -> None:
    """Write an array (Z, Y, X) or (C, Z, Y, X) that is in memory, atomically.

    Raises VolumeError, also when the disk fails.
    """
    four = array if array.ndim == 4 else array[None]
    z, y, x = (min(a, b) for a, b in zip(block, four.shape[1:], strict=True))
    c, depth, height, width = four.shape
    spec = OutputSpec((c, depth, height, width), array.dtype, (z, y, x), attributes or {})
    destination.refuse_standing()
    # Whatever was begun there by another job makes room.
    out = ZarrOutput(replace(destination, overwrite=True), spec, channels=array.ndim == 4)
    try:
        with explained(destination.path, VolumeError), out:
            for lower, upper in spec.blocks():
                at = tuple(slice(a, b) for a, b in zip(lower, upper, strict=True))
                out.write(lower, four[(slice(None), *at)])
            out.finish()
    except BaseException:
        out.discard()
        raise


def _group_document(attributes: Mapping[str, Any]) -> bytes:
    document = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    return (json.dumps(document, indent=2) + "\n").encode()


def _chunk(size: int) -> int:
    """Return the divisor of a block's size that is nearest to `CHUNK`, by ratio."""
    divisors = [n for n in range(1, size + 1) if size % n == 0]
    return min(divisors, key=lambda n: max(n / CHUNK, CHUNK / n))


def _fill(dtype: np.dtype[Any]) -> Any:
    """Return the value of absent chunks, which is never written: Zarr leaves chunks of only that out."""
    return np.nan if dtype.kind == "f" else np.iinfo(dtype).max


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as JSON can hold them."""
    return {
        key: value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        for key, value in attributes.items()
    }


def _read(path: Path) -> bytes:
    """Return a file's content, empty if there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _checksum_of(documents: Mapping[str, bytes]) -> int:
    return crc32(b"\0".join(documents[name] for name in sorted(documents)))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
