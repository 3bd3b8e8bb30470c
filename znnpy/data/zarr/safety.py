"""Checks the metadata of untrusted Zarr arrays, and bounds what their chunks decode to.

Zarr itself loads codecs by entry points and allocates what metadata declare, so metadata are checked here first,
as plain JSON: numbers, known codecs, plausible sizes. `bound` then keeps each chunk from decoding to more than
it should, whatever its bytes say.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from zarr.abc.codec import BytesBytesCodec, Codec
from zarr.codecs import BloscCodec, GzipCodec, ShardingCodec, ZstdCodec
from zarr.codecs._v2 import V2Codec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer

from znnpy.data.decoded_size import STREAMS, inflated, refuse_larger
from znnpy.data.process_memory import readable
from znnpy.data.safety_limits import CHUNK_LIMIT, SMALL, Trust
from znnpy.data.zarr.store import Node, ZarrFolder
from znnpy.errors import VolumeError

KINDS: dict[type[Codec], str] = {BloscCodec: "blosc", GzipCodec: "gzip", ZstdCodec: "zstd"}

CODECS = ("blosc", "gzip", "zstd", "crc32c", "transpose", "bytes", "sharding_indexed")
COMPRESSORS = ("blosc", "zlib", "gzip", "zstd", "lz4", "bz2")
_TYPES = tuple(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))
TYPES = ("bool", *_TYPES, "float16", "float32", "float64")
# Chunks that are absent or constant take next to nothing: zstd packs 128 KiB into 4 bytes.
EMPTY_COMPRESSION = 1 << 15
INNER_CHUNKS = 1 << 24  # of a shard: its index, 16 bytes each, is read whole
NESTED = 2  # shards within shards


def bound(array: Any) -> Any:
    """Make a zarr array refuse chunks that would decode to more than they should; return the same array."""
    inner = array.async_array
    pipeline = inner.codec_pipeline
    made = type(pipeline).from_codecs([_bounded(codec) for codec in pipeline])
    object.__setattr__(inner, "codec_pipeline", made)
    return array


def most(spec: ArraySpec) -> int:
    """Return the most bytes that a chunk may decode to: its values, and what checksums or a second codec add."""
    size: int = math.prod(spec.shape) * spec.dtype.to_native_dtype().itemsize
    return size + (size >> 3) + 4096


def _bounded(codec: Any) -> Any:
    if isinstance(codec, ShardingCodec):
        return ShardingCodec(
            chunk_shape=codec.chunk_shape,
            codecs=[_bounded(inner) for inner in codec.codecs],
            index_codecs=[_bounded(inner) for inner in codec.index_codecs],
            index_location=codec.index_location,
        )
    if isinstance(codec, V2Codec):
        return _BoundedV2(codec.filters, codec.compressor)
    return _Bounded(codec, KINDS[type(codec)]) if type(codec) in KINDS else codec


@dataclass(frozen=True)
class _Bounded(BytesBytesCodec):  # type: ignore[misc]
    """A decoder of format 3 that checks the decoded size first."""

    codec: Any
    kind: str
    is_fixed_size = False

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> _Bounded:
        return replace(self, codec=self.codec.evolve_from_array_spec(array_spec))

    async def _decode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> Buffer:
        data, limit = chunk_bytes.to_bytes(), most(chunk_spec)
        if self.kind in STREAMS:
            found = await asyncio.to_thread(inflated, self.kind, data, limit)
            return chunk_spec.prototype.buffer.from_bytes(found)
        refuse_larger(self.kind, data, limit)
        return await self.codec._decode_single(chunk_bytes, chunk_spec)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        return int(self.codec.compute_encoded_size(input_byte_length, chunk_spec))


class _BoundedV2(V2Codec):  # type: ignore[misc]
    """The decoder of format 2, with a limit for what its compressor may decode to."""

    async def _decode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> Any:
        plain = replace(self, compressor=None)
        if self.compressor is None:
            return await V2Codec._decode_single(plain, chunk_bytes, chunk_spec)
        kind, data, limit = self.compressor.codec_id, chunk_bytes.to_bytes(), most(chunk_spec)
        if kind in STREAMS:
            found = await asyncio.to_thread(inflated, kind, data, limit)
        else:
            refuse_larger(kind, data, limit)
            found = await asyncio.to_thread(self.compressor.decode, data)
        made = chunk_spec.prototype.buffer.from_bytes(bytes(found))
        return await V2Codec._decode_single(plain, made, chunk_spec)


@dataclass(frozen=True)
class Declared:
    """The content of an array's metadata, checked: shape, dtype, chunk (the unit that is decoded)."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk: tuple[int, ...]
    file: tuple[int, ...]
    """Shape of what lies in one file: a chunk, or a shard of several."""
    names: tuple[str, ...] | None
    """Names of the axes, where the array has them."""
    folders: int
    """Folders within each other around the file of a chunk, below the array's own."""

    @property
    def file_bytes(self) -> int:
        """The bytes of one file, uncompressed."""
        return math.prod(self.file) * self.dtype.itemsize


def declared(node: Node, name: str, trust: Trust) -> Declared:
    """Check an array's metadata and return them; VolumeError names what is wrong."""
    found = _declared3(node, name) if node.form == 3 else _declared2(node, name)
    if len(found.shape) not in (2, 3, 4, 5):
        raise VolumeError(
            f"{name} has {len(found.shape)} axes, shape {found.shape}; expected 3 (z, y, x) or "
            "4 (c, z, y, x)"
        )
    if math.prod(found.chunk) * found.dtype.itemsize > CHUNK_LIMIT:
        raise VolumeError(
            f"{name} is stored in chunks of shape {found.chunk}; at most {readable(CHUNK_LIMIT)} a "
            "chunk are accepted"
        )
    inner = math.prod(math.ceil(a / b) for a, b in zip(found.file, found.chunk, strict=True))
    if inner > INNER_CHUNKS:
        raise VolumeError(f"{name} has {inner} chunks a shard; at most {INNER_CHUNKS} are accepted")
    return found


def check_size(found: Declared, folder: ZarrFolder, node: Node, name: str, trust: Trust) -> None:
    """Refuse arrays that declare much more than their files can hold, and empty ones."""
    size = math.prod(found.shape) * found.dtype.itemsize
    if trust.max_bytes is not None:
        limit: float = trust.max_bytes
    else:
        stored = folder.stored(node.path, max(1, size / EMPTY_COMPRESSION))
        if stored == 0 and size > 0:
            raise VolumeError(f"{name} declares {readable(size)}, but no data was ever written")
        limit = max(SMALL, EMPTY_COMPRESSION * stored)
    if size > limit:
        raise VolumeError(
            f"{name} declares {readable(size)} of data, shape {found.shape}; at most "
            f"{readable(limit)} are accepted for what its files hold"
        )


def _declared3(node: Node, name: str) -> Declared:
    data = node.metadata
    shape = _sizes(data.get("shape"), name, "shape", least=0)
    kind = data.get("data_type")
    if kind not in TYPES:
        raise _wrong_type(kind, name)
    if data.get("storage_transformers"):
        raise VolumeError(f"{name} uses storage transformers, which are not read")
    grid = _configured(data.get("chunk_grid"), name, "chunk_grid")
    if grid[0] != "regular":
        raise VolumeError(f"{name} has chunk grid {grid[0][:40]!r}; only regular ones are read")
    file = _sizes(grid[1].get("chunk_shape"), name, "chunk_shape", like=shape)
    folders = _folders(data.get("chunk_key_encoding"), len(shape), name)
    chunk = _codecs(data.get("codecs"), file, name)
    found = data.get("dimension_names")
    named = found if isinstance(found, list) else [None]
    known = tuple(n for n in named if isinstance(n, str))
    names = known if len(known) == len(named) else None
    return Declared(shape, np.dtype(kind), chunk, file, names, folders)


def _declared2(node: Node, name: str) -> Declared:
    data = node.metadata
    shape = _sizes(data.get("shape"), name, "shape", least=0)
    chunk = _sizes(data.get("chunks"), name, "chunks", like=shape)
    dtype = _dtype2(data.get("dtype"), name)
    if data.get("filters"):
        raise VolumeError(
            f"{name} is stored with filters {_short(data['filters'])}; none are read: write it again with filters=None"
        )
    compressor = data.get("compressor")
    if compressor is not None:
        kind = compressor.get("id") if isinstance(compressor, dict) else compressor
        if kind not in COMPRESSORS:
            raise _wrong_codec(kind, name, COMPRESSORS)
    if data.get("dimension_separator", ".") not in (".", "/"):
        raise VolumeError(f"{name}: dimension_separator must be . or /")
    nested = data.get("dimension_separator", ".") == "/"
    return Declared(shape, dtype, chunk, chunk, None, len(shape) - 1 if nested else 0)


def _codecs(found: Any, shape: tuple[int, ...], name: str, depth: int = 0) -> tuple[int, ...]:
    """Check a chain of codecs; return the shape of what is decoded at once."""
    if not isinstance(found, list) or not found:
        raise VolumeError(f"{name}: codecs must be a list")
    chunk = shape
    for item in found:
        kind, settings = _configured(item, name, "codecs")
        if kind not in CODECS:
            raise _wrong_codec(kind, name, CODECS)
        if kind == "sharding_indexed":
            if depth >= NESTED or len(found) > 1:
                raise VolumeError(f"{name}: shards within shards or with other codecs are not read")
            inner = _sizes(settings.get("chunk_shape"), name, "chunk_shape", like=shape)
            chunk = _codecs(settings.get("codecs"), inner, name, NESTED)
            if "index_codecs" in settings:
                _codecs(settings["index_codecs"], inner, name, NESTED)
    return chunk


def _folders(found: Any, axes: int, name: str) -> int:
    """Return how many folders the names of chunks have: default names begin with c, and / separates folders."""
    kind, settings = _configured(found, name, "chunk_key_encoding")
    if kind not in ("default", "v2") or settings.get("separator", "/") not in (".", "/"):
        raise VolumeError(f"{name}: chunk_key_encoding {kind[:40]!r} is not read")
    separator = settings.get("separator", "/" if kind == "default" else ".")
    return (axes if kind == "default" else axes - 1) if separator == "/" else 0


def _configured(found: Any, name: str, key: str) -> tuple[str, dict[str, Any]]:
    """Return name and configuration of an extension point."""
    named = {"name": found} if isinstance(found, str) else found
    kind = named.get("name") if isinstance(named, dict) else None
    settings = named.get("configuration", {}) if isinstance(named, dict) else None
    if not isinstance(kind, str) or not isinstance(settings, dict):
        raise VolumeError(f"{name}: {key} must have a name and a configuration")
    return kind, settings


def _sizes(
    found: Any, name: str, key: str, least: int = 1, like: Sequence[int] | None = None
) -> tuple[int, ...]:
    whole = isinstance(found, list) and all(type(n) is int and least <= n < 2**63 for n in found)
    if not whole or (like is not None and len(found) != len(like)):
        raise VolumeError(f"{name}: {key} {_short(found)} must be whole numbers, one for each axis")
    return tuple(found)


def _dtype2(found: Any, name: str) -> np.dtype[Any]:
    try:
        dtype = np.dtype(found) if isinstance(found, str) else None
    except (TypeError, ValueError):
        dtype = None
    if dtype is None or dtype.kind not in "uifb" or dtype.itemsize > 8:
        raise _wrong_type(found, name)
    return dtype


def _wrong_type(found: Any, name: str) -> VolumeError:
    return VolumeError(
        f"{name} has no type of plain numbers ({_short(found)}); expected integers or floats of at "
        "most 64 bits"
    )


def _wrong_codec(kind: Any, name: str, known: Sequence[str]) -> VolumeError:
    return VolumeError(
        f"{name} is stored with codec {_short(kind)}; only {', '.join(known)} are read: write it again with one"
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
