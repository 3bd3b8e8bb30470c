"""A volume in a Zarr folder, format 2 or 3, plain or with OME metadata, read by region."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import zarr
from zarr.abc.store import (
    ByteRequest,
    OffsetByteRequest,
    RangeByteRequest,
    Store,
    SuffixByteRequest,
)
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.core.sync import sync

from znnpy.data.chunk_folder import METADATA_LIMIT
from znnpy.data.class_labels import first_class_of
from znnpy.data.safety_limits import Trust
from znnpy.data.volume import Array, Triple, Triple64, Volume, directions_of, neighbours_of
from znnpy.data.zarr import ome
from znnpy.data.zarr.safety import Declared, bound, check_size, declared
from znnpy.data.zarr.store import MARKS, Node, ZarrFolder, root_of
from znnpy.dataset_path import joined
from znnpy.errors import ChangedError, VolumeError, reason, refuse_own

ROUNDS = 8  # of waiting for chunks; other threads may read without end
_SETTLING: WeakSet[asyncio.Task[Any]] = WeakSet()  # tasks that wait for all others, of any thread
DEEP = 32  # groups in each other in which an image is looked for


class ZarrVolume(Volume):
    """An array (C, Z, Y, X), (Z, Y, X) or (Y, X), or an OME image's, which has its axes, voxel size and place.

    A plane is one slice, of no known voxel size.

    Elsewhere the attributes `resolution` (or `voxel_size`) and `offset` count, z, y, x, nanometres.
    Chunks are decoded by zarr, in threads of its own.
    """

    def __init__(
        self, path: Path, dataset: str | None, names: Sequence[str], labels: bool, trust: Trust
    ) -> None:
        root, inner = root_of(path)
        folder = ZarrFolder(root, trust.external)
        wanted = "/".join(part for part in (inner, (dataset or "").strip("/")) if part)
        picked = _pick(folder, wanted, names, labels)
        name = joined(root, picked.node.path)
        found = declared(picked.node, name, trust)
        axes = (picked.level.axes if picked.level else None) or _named(found)
        self._lead, self._plane = ome.order(axes or _usual(found), found.shape, name)
        *before, y, x = found.shape[len(self._lead) :]
        c, z = (1, 1, *before, *((1,) if self._plane else ()))[-2:]
        resolution, placed = ((1.0, 1.0, 1.0), None) if self._plane else _frame(picked, name)
        super().__init__(name, (c, z, y, x), found.dtype, resolution, placed)
        self.unnamed = axes is None and len(before) == 2
        self.neighbours = neighbours_of(picked.node.attributes.get("offsets"), c)
        self.first_class = first_class_of(picked.node.attributes.get("first_class"))
        self.directions = directions_of(picked.node.attributes.get("directions"))
        check_size(found, folder, picked.node, name, trust)
        self._chunk = (1, *found.chunk[-2:]) if self._plane else found.chunk[-3:]
        folder.see_chunks(picked.node.path, found.folders)
        self._folder, self._metadata = folder, picked.node.file
        self._array: Any = _opened(folder, picked.node, found, name)

    @property
    def chunk(self) -> Triple:
        """The chunk z, y, x that is decoded at once."""
        z, y, x = self._chunk
        return (z, y, x)

    def _read(self, lower: Triple, upper: Triple) -> Array:
        if self._array is None:
            raise VolumeError(f"{self.name}: the volume was closed")
        region = [slice(a, b) for a, b in zip(lower, upper, strict=True)]
        try:
            array = np.asarray(self._array[(*self._lead, ..., *region[self._plane :])])
        except BaseException as error:
            changed = sync(_settled())
            if isinstance(error, ChangedError) or not isinstance(error, Exception):
                raise
            if changed is not None:  # why this chunk is damaged, too, if it was not seen before
                raise changed from error
            if isinstance(error, VolumeError):
                raise VolumeError(f"{self.name}: {error}") from error
            refuse_own(
                error
            )  # others come from codecs, which raise nearly anything on damaged chunks
            raise VolumeError(
                f"{self.name}: the region {lower} to {upper} (z, y, x) cannot be read, a chunk is "
                f"damaged ({reason(error)})"
            ) from error
        return array.reshape(-1, *(b - a for a, b in zip(lower, upper, strict=True)))

    def verify(self) -> None:
        """Raise ChangedError unless the metadata are those that were opened; chunks are checked as they are read."""
        self._folder.verify([self._metadata])

    def close(self) -> None:
        """Give up the array; no file is held open."""
        self._array = None


async def _settled() -> ChangedError | None:
    """Wait for the chunks that zarr still reads when one has failed; return a change that they found, if any.

    zarr raises at the first. asyncio would write a traceback of each of the others when the process ends. Those of
    other threads that wait like this are no chunks: two of them would wait for each other without end.
    """
    changed, own = None, asyncio.current_task()
    if own:
        _SETTLING.add(own)
    for _ in range(ROUNDS):
        others = asyncio.all_tasks() - set(_SETTLING)
        if not others:
            break
        for task in (await asyncio.wait(others))[0]:
            found = None if task.cancelled() else task.exception()
            changed = found if isinstance(found, ChangedError) else changed
    return changed


@dataclass(frozen=True)
class _Picked:
    """An array, and what the metadata of its image say of it."""

    node: Node
    level: ome.Level | None


def _pick(folder: ZarrFolder, path: str, names: Sequence[str], labels: bool) -> _Picked:
    node = folder.node(path)
    if node is None:
        if path or not _has_nodes(folder):
            raise VolumeError(_missing(folder, path))
        node = Node("", "group", 2, {}, {})
    if node.kind == "array":
        return _Picked(node, _level_of(folder, node.path))
    found = _image(folder, node, names, labels) if labels else None
    return (
        found or _level(folder, node) or _image(folder, node, names, labels) or _only(folder, node)
    )


def _level(folder: ZarrFolder, group: Node) -> _Picked | None:
    """Return the finest level of the image that a group is."""
    found = ome.levels(group.attributes, str(folder.path / group.path))
    if not found:
        return None
    path = _joined(group.path, found[0].path)
    node = folder.node(path)
    if node is None or node.kind != "array":
        raise VolumeError(f"{folder.name}: the OME metadata name {path}, which is no array")
    return _Picked(node, found[0])


def _image(folder: ZarrFolder, group: Node, names: Sequence[str], labels: bool) -> _Picked | None:
    """Return what has a usual name: image 0 of a series, the only labels of an image, volumes/raw."""
    if group.path.count("/") > DEEP:
        raise VolumeError(
            f"{folder.name}: series of images or labels in each other; name the array"
        )
    ome_part = group.attributes.get("ome", group.attributes)
    listed = ome_part.get("labels") if isinstance(ome_part, dict) else None
    if isinstance(listed, list) and len(listed) == 1 and isinstance(listed[0], str):
        names = (listed[0], *names)
    series = isinstance(ome_part, dict) and "bioformats2raw.layout" in ome_part
    if series:
        first = folder.node(_joined(group.path, "0"))
        found = _image(folder, first, names, labels) if labels and first is not None else None
        if found is not None:
            return found
        names = ("0", *names)
    for name in names:
        node = folder.node(_joined(group.path, name))
        if node is not None and node.kind == "array":
            return _Picked(node, _level_of(folder, node.path))
        if node is not None:
            return _level(folder, node) or _image(folder, node, (), labels) or _only(folder, node)
    return None


def _only(folder: ZarrFolder, group: Node) -> _Picked:
    found = [n for n in folder.nodes(group.path) if n.kind == "array"]
    by_axes = {axes: [n for n in found if _axes_count(n) == axes] for axes in (2, 3, 4)}
    candidates = by_axes[3] or by_axes[4] or by_axes[2]
    if len(candidates) == 1:
        return _Picked(candidates[0], _level_of(folder, candidates[0].path))
    if not found:
        raise VolumeError(f"{folder.name}: the Zarr folder holds no array")
    listed = ", ".join(n.path for n in (candidates or found)[:20])
    what = "several arrays could be meant" if candidates else "no array has 2 to 4 axes"
    raise VolumeError(f"{folder.name}: {what}: {listed}. Name one as FOLDER:ARRAY")


def _level_of(folder: ZarrFolder, path: str) -> ome.Level | None:
    """Return what the nearest image around an array says of it."""
    parts = path.split("/") if path else []
    for cut in range(len(parts) - 1, -1, -1):
        group = folder.node("/".join(parts[:cut]))
        if group is None or group.kind != "group":
            continue
        inner = "/".join(parts[cut:])
        for level in ome.levels(group.attributes, str(folder.path / group.path)):
            if level.path == inner:
                return level
    return None


def _frame(picked: _Picked, name: str) -> tuple[Triple64, Triple64 | None]:
    """Return voxel size and place of the first voxel where it is said, z, y, x, nanometres."""
    level, attributes = picked.level, picked.node.attributes
    if level is not None and level.scale is not None:
        return ome.spatial(level.scale) or (1.0, 1.0, 1.0), ome.spatial(level.translation)
    size = _triple(attributes, "resolution", name) or _triple(attributes, "voxel_size", name)
    if size and min(size) <= 0:
        raise VolumeError(f"{name}: the voxel size {size} (z, y, x) must be positive")
    return size or (1.0, 1.0, 1.0), _triple(attributes, "offset", name)


def _triple(attributes: Mapping[str, Any], key: str, name: str) -> Triple64 | None:
    found = attributes.get(key)
    if found is None:
        return None
    plain = isinstance(found, list) and all(type(v) in (int, float) for v in found)
    values = found[-3:] if plain and len(found) in (3, 4) else []
    if not values or not all(abs(v) < 1e300 for v in values):
        raise VolumeError(f"{name}: the attribute {key} must be three numbers z, y, x")
    return (float(values[0]), float(values[1]), float(values[2]))


def _named(found: Declared) -> tuple[str, ...] | None:
    """Return the array's own names of its axes, if they are usual ones."""
    usual = {"t", "time", "c", "channel", "z", "y", "x"}
    if found.names and all(name.lower() in usual for name in found.names):
        return found.names
    return None


def _usual(found: Declared) -> tuple[str, ...]:
    return ("t", "c", "z", "y", "x")[-len(found.shape) :]


def _axes_count(node: Node) -> int:
    shape = node.metadata.get("shape")
    return len(shape) if isinstance(shape, list) else 0


def _has_nodes(folder: ZarrFolder) -> bool:
    return next(folder.nodes(), None) is not None


def _missing(folder: ZarrFolder, path: str) -> str:
    if not path:
        return f"{folder.name} is no Zarr folder: it holds no zarr.json, .zarray or .zgroup"
    names = [node.path for node in folder.nodes()]
    close = difflib.get_close_matches(path, names, 1, 0.5)
    hint = f"did you mean {close[0]}? It holds" if close else "it holds"
    return f"{folder.name} has no array {path}; {hint}: {', '.join(names[:20]) or 'none'}"


def _joined(group: str, name: str) -> str:
    return f"{group}/{name}" if group else name


def _opened(folder: ZarrFolder, node: Node, found: Declared, name: str) -> Any:
    # Compressed data are hardly larger than plain ones; what is much larger was made to harm.
    limit = 2 * found.file_bytes + (1 << 16)
    try:
        store = _FolderStore(folder, limit)
        return bound(zarr.open_array(store, path=node.path, mode="r", zarr_format=node.form))
    except VolumeError:
        raise
    except Exception as error:  # zarr raises nearly anything on malformed metadata
        refuse_own(error)
        raise VolumeError(f"{name}: the Zarr metadata are malformed ({reason(error)})") from error


class _FolderStore(Store):  # type: ignore[misc]
    """Hands zarr the files of a folder, and no others; reads only."""

    supports_writes = supports_deletes = supports_listing = False

    def __init__(self, folder: ZarrFolder, limit: int) -> None:
        super().__init__(read_only=True)
        self._folder, self._limit = folder, limit

    def __eq__(self, other: object) -> bool:
        return self is other

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        data = await asyncio.to_thread(self._read, key, byte_range)
        form = prototype or default_buffer_prototype()
        return None if data is None else form.buffer.from_bytes(data)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return [await self.get(key, prototype, part) for key, part in key_ranges]

    async def exists(self, key: str) -> bool:
        return self._folder.read(key, self._limit, 0, 0) is not None

    async def set(self, key: str, value: Buffer) -> None:
        raise NotImplementedError

    async def delete(self, key: str) -> None:
        raise NotImplementedError

    def list(self) -> AsyncIterator[str]:
        raise NotImplementedError

    def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        raise NotImplementedError

    def list_dir(self, prefix: str) -> AsyncIterator[str]:
        raise NotImplementedError

    def _read(self, key: str, part: ByteRequest | None) -> bytes | None:
        start, size = 0, None
        match part:
            case RangeByteRequest():
                start, size = part.start, part.end - part.start
            case OffsetByteRequest():
                start = part.offset
            case SuffixByteRequest():
                start = -part.suffix
        limit = METADATA_LIMIT if key.rpartition("/")[2] in MARKS else self._limit
        return self._folder.read(key, limit, start, size)
