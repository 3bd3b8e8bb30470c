"""Chunks of Zarr arrays that decode to no more than they hold values, whatever their bytes say."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, replace
from typing import Any

from zarr.abc.codec import BytesBytesCodec, Codec
from zarr.codecs import BloscCodec, GzipCodec, ShardingCodec, ZstdCodec
from zarr.codecs._v2 import V2Codec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer

from znnpy.data.decoded import STREAMS, inflated, refuse_larger

KINDS: dict[type[Codec], str] = {BloscCodec: "blosc", GzipCodec: "gzip", ZstdCodec: "zstd"}


def bound(array: Any) -> Any:
    """Make a zarr array refuse chunks that would decode to more than they should; the same array."""
    inner = array.async_array
    pipeline = inner.codec_pipeline
    made = type(pipeline).from_codecs([_bounded(codec) for codec in pipeline])
    object.__setattr__(inner, "codec_pipeline", made)
    return array


def most(spec: ArraySpec) -> int:
    """Bytes that a chunk may decode to: its values, and what checksums or a second codec add."""
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
    """A decoder of format 3 that looks before it decodes."""

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
    """The decoder of format 2, which gets what its compressor may decode to."""

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
