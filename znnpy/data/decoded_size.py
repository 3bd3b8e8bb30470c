"""Finds how many bytes compressed data decode to, before memory is allocated: a guard against decompression bombs."""

from __future__ import annotations

import bz2
import struct
import zlib
from collections.abc import Callable

import numpy as np

from znnpy.data.process_memory import readable
from znnpy.errors import VolumeError

STREAMS: dict[str, Callable[[], zlib._Decompress | bz2.BZ2Decompressor]] = {
    "gzip": lambda: zlib.decompressobj(16 + zlib.MAX_WBITS),
    "zlib": zlib.decompressobj,
    "bz2": bz2.BZ2Decompressor,
}
"""Formats that do not declare their length: they are decoded up to a limit."""
# Of zstd: magic numbers of frames and of skippable frames, bytes of the largest block (RFC 8878).
_ZSTD, _SKIPPABLE, _BLOCK = 0xFD2FB528, 0x184D2A50, 128 << 10


def inflated(kind: str, data: bytes, limit: int) -> bytes:
    """Decode one of `STREAMS`, of any number of members; raise VolumeError beyond `limit` bytes."""
    pieces, length = [], 0
    while data:
        stream = STREAMS[kind]()
        piece = _up_to(stream, data, limit + 1 - length)
        pieces.append(piece)
        length += len(piece)
        if length > limit:
            raise VolumeError(_too_large(f"more than {readable(limit)}", limit))
        if not stream.eof:
            raise VolumeError(f"a chunk ends within its {kind} data")
        data = stream.unused_data if kind != "zlib" else b""
    return b"".join(pieces)


def lzf_length(data: bytes) -> int:
    """Return the number of bytes that LZF data decode to; VolumeError where they end within a run."""
    # numba takes a second to import and the count another to compile: only readers of LZF wait.
    from znnpy_kernels.data.lzf import decoded_length

    length: int = decoded_length(np.frombuffer(data, np.uint8).ctypes.data, len(data))
    if length < 0:
        raise VolumeError("it ends within its lzf data")
    return length


def refuse_larger(kind: str, data: bytes, limit: int) -> None:
    """Raise VolumeError when `data` declare, or may decode to, more than `limit` bytes.

    `kind` is blosc, lz4 or zstd; others are not looked at. Truncated Blosc data are refused too: Blosc would read
    beyond their end.
    """
    size = {"blosc": _blosc, "lz4": _lz4, "zstd": _zstd}.get(kind, lambda _: 0)(data)
    if size > limit:
        raise VolumeError(_too_large(readable(size), limit))


def _up_to(stream: zlib._Decompress | bz2.BZ2Decompressor, data: bytes, most: int) -> bytes:
    return stream.decompress(data, most)


def _too_large(size: str, limit: int) -> str:
    return f"a chunk decodes to {size} where at most {readable(limit)} are expected; refused"


def _blosc(data: bytes) -> int:
    size, _, stored = struct.unpack_from("<III", data, 4) if len(data) >= 16 else (0, 0, 16)
    if stored > len(data):
        raise VolumeError(f"a chunk ends after {len(data)} of its {stored} bytes")
    return int(size)


def _lz4(data: bytes) -> int:
    return int(struct.unpack_from("<I", data)[0]) if len(data) >= 4 else 0


def _zstd(data: bytes) -> int:
    """Return the bytes of all frames; a frame that does not declare them is bounded by its blocks (RFC 8878)."""
    told = feared = place = 0
    silent = False
    while place + 8 <= len(data):
        magic, size = struct.unpack_from("<II", data, place)
        if magic & ~0xF == _SKIPPABLE:
            place += 8 + size
        elif magic == _ZSTD:
            declared, bound, place = _frame(data, place + 4)
            told, feared = told + (declared or 0), feared + bound
            silent |= declared is None
        else:
            break  # damaged, or bytes behind the last frame: for the decoder to say
    return feared if silent else told


def _frame(data: bytes, place: int) -> tuple[int | None, int, int]:
    """Return, of the zstd frame at `place`: the bytes it declares, the most it can have, and its end.

    Compressed blocks count as full ones but for one, as the last is cut in good frames.
    """
    flags = data[place]
    single = flags >> 5 & 1
    place += 1 + (1 - single) + (0, 1, 2, 4)[flags & 3]
    width = (single, 2, 4, 8)[flags >> 6]
    declared = int.from_bytes(data[place : place + width], "little") + (256 if width == 2 else 0)
    place, plain, packed, last = place + width, 0, 0, False
    while not last and place + 3 <= len(data):
        header = int.from_bytes(data[place : place + 3], "little")
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        packed, plain = packed + (kind == 2), plain + size * (kind < 2)
        place += 3 + (1 if kind == 1 else size)
    bound = plain + _BLOCK * max(0, packed - 1)
    return (declared if width else None), bound, place + 4 * (flags >> 2 & 1)
