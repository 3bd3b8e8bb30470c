"""Writes a large Zarr image block by block so that a killed process can resume where it stopped.

Format 3 with OME metadata 0.5. Each block is one shard, so one file, of smaller chunks; it is written
beside its place, synced and renamed, and belongs to no other block.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec

from znnpy.data.volume import Array, Triple
from znnpy.data.writing.chunk_folders import chunk_size, plain
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.folder_output import FolderOutput, write_folder
from znnpy.data.writing.journal import Region
from znnpy.data.zarr import ome


class ZarrOutput(FolderOutput):
    """A new Zarr folder with an image, arrays DATASET/0, DATASET/1 ... of its levels, or 0, 1 ... for an empty name.

    The attributes `resolution` and `offset` (z, y, x, nanometres) become OME's scale and translation; all stay
    attributes of the array. Blocks are compressed by Blosc without loss.
    """

    KEEPS_MEANING = True

    @cached_property
    def _templates(self) -> dict[int, bytes]:
        """The metadata of levels, by which shards are encoded, once they are read."""
        return {}

    def _array(self, level: int) -> str:
        return "/".join(part for part in (self._group, str(level)) if part)

    def _files(self, level: int, region: Region) -> Iterator[tuple[str, Region]]:
        self._refuse_off_grid(region[0])
        numbers = [at // step for at, step in zip(region[0], self.spec.block, strict=True)]
        numbers = [0, *numbers] if self._channels else numbers
        yield "/".join([self._array(level), "c", *map(str, numbers)]), region

    def _encoded(self, level: int, region: Region, data: Array) -> bytes:
        """Return the shard of one block, empty if it holds nothing but the fill value."""
        if level not in self._templates:
            self._templates[level] = (self._partial / self._array(level) / "zarr.json").read_bytes()
        memory: dict[str, Any] = {}
        store = zarr.storage.MemoryStore(memory)
        memory["zarr.json"] = zarr.core.buffer.cpu.Buffer.from_bytes(self._templates[level])
        array = zarr.open_array(store, mode="r+")
        z, y, x = (slice(a, b) for a, b in zip(*region, strict=True))
        if self._channels:
            array[:, z, y, x] = data
        else:
            array[z, y, x] = data[0]
        shards = [value for key, value in memory.items() if key != "zarr.json"]
        return bytes(shards[0].to_bytes()) if shards else b""

    def _stored(self, level: int) -> Any:
        found = zarr.open_array(self._partial / self._array(level), mode="r")
        return found if self._channels else _OneChannel(found)

    def _documents(self) -> dict[str, bytes]:
        parts = self._group.split("/") if self._group else []
        groups = ["/".join(parts[:count]) for count in range(len(parts) + 1)]
        made = {name: _group_document({}) for name in groups}
        name = parts[-1] if parts else Path(self.destination.place).stem
        places = [
            (str(level), found.resolution(self._resolution), self._first(level))
            for level, found in enumerate(self._levels)
        ]
        made[self._group] = _group_document(ome.multiscales(name, self._channels, places))
        for level in range(len(self._levels)):
            made[self._array(level)] = self._array_document(level)
        return {f"{key}/zarr.json".lstrip("/"): text for key, text in made.items()}

    def _array_document(self, level: int) -> bytes:
        spec, first = self.spec, 0 if self._channels else 1
        shape = self._levels[level].shape
        shards = (spec.shape[0], *spec.block)
        chunks = (1, *(chunk_size(size) for size in spec.block))
        memory: dict[str, Any] = {}
        zarr.create_array(
            zarr.storage.MemoryStore(memory),
            shape=shape[first:],
            dtype=spec.dtype,
            chunks=chunks[first:],
            shards=shards[first:],
            compressors=BloscCodec(
                cname="zstd", clevel=3, shuffle="shuffle", typesize=spec.dtype.itemsize
            ),
            fill_value=_fill(spec.dtype),
            attributes=plain(spec.attributes) if level == 0 else {},
            dimension_names=("c", "z", "y", "x")[first:],
        )
        return bytes(memory["zarr.json"].to_bytes())


class _OneChannel:
    """An array (z, y, x) as one of a channel."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __getitem__(self, key: tuple[slice, ...]) -> Array:
        return np.asarray(self._array[key[1:]])[None]


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
    write_folder(ZarrOutput, destination, array, attributes, block)


def _group_document(attributes: Mapping[str, Any]) -> bytes:
    document = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    return (json.dumps(document, indent=2) + "\n").encode()


def _fill(dtype: np.dtype[Any]) -> Any:
    """Return the value of absent chunks, which is never written: Zarr leaves chunks of only that out."""
    return np.nan if dtype.kind == "f" else np.iinfo(dtype).max
