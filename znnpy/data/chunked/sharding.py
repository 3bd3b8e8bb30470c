"""Finds chunks in the shards of a precomputed volume: files of many chunks, each found by a number that is hashed.

After https://github.com/google/neuroglancer/blob/master/src/datasource/precomputed/sharded.md.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.data.chunk_folder import ChunkFolder
from znnpy.data.decoded_size import inflated
from znnpy.errors import VolumeError, reason, refuse_own

KIND = "neuroglancer_uint64_sharded_v1"
ENCODINGS = ("raw", "gzip")
HASHES = ("identity", "murmurhash3_x86_128")
INDEX = 1 << 26  # bytes of an index at most, which is read whole: of 2.8 million chunks
KEPT = 1 << 26  # bytes of indices that are kept
ENTRY = 512  # bytes that one takes beside its numbers
_WORD = (1 << 32) - 1
Index = NDArray[np.uint64]
"""Of each chunk of a part of a shard its number, its first byte and its bytes (3, chunks), by number."""


class Shards:
    """The shards below a path of a folder; any number of threads may read. `grid`: chunks along x, y, z."""

    def __init__(
        self, folder: ChunkFolder, path: str, found: Any, grid: Sequence[int], name: str
    ) -> None:
        given = found if isinstance(found, dict) else {}
        if given.get("@type") != KIND:
            raise VolumeError(f"{name}: sharding is {str(given.get('@type'))[:60]}; {KIND} is read")
        self._shift, self._parts, self._shards = (
            _bits(given, key, name) for key in ("preshift_bits", "minishard_bits", "shard_bits")
        )
        if self._parts + self._shards > 64 or 16 << self._parts > INDEX:
            raise VolumeError(f"{name}: sharding has more parts than are read")
        self._hash = _one_of(HASHES, given.get("hash"), "hash", name)
        self._packed = _one_of(ENCODINGS, given.get("data_encoding", "raw"), "data_encoding", name)
        self._index_packed = _one_of(
            ENCODINGS,
            given.get("minishard_index_encoding", "raw"),
            "minishard_index_encoding",
            name,
        )
        self._folder, self._path, self._grid = folder, path, tuple(grid)
        self._bits = sum((n - 1).bit_length() for n in grid)
        if self._bits > 64:
            raise VolumeError(
                f"{name}: a shard's numbers do not tell {grid} chunks (x, y, z) apart"
            )
        self._lock, self._kept = threading.Lock(), OrderedDict[tuple[str, int], Index]()
        self._bytes_kept = 0

    def read(self, place: Sequence[int], limit: int) -> bytes | None:
        """Return the bytes of the chunk at a place x, y, z of the grid; None where there is none.

        Raises VolumeError for what is damaged, or decodes to more than `limit`.
        """
        number = morton(place, self._grid)
        hashed = hashes(number >> self._shift, self._hash)
        part = hashed & ((1 << self._parts) - 1)
        shard = hashed >> self._parts & ((1 << self._shards) - 1)
        key = f"{self._path}/{shard:0{-(-self._shards // 4)}x}.shard"
        index = self._index(key, part)
        at = int(np.searchsorted(index[0], np.uint64(number)))
        if at == index.shape[1] or int(index[0, at]) != number:
            return None
        start, size = int(index[1, at]), int(index[2, at])
        data = self._bytes(key, start, size, limit)
        return unpacked(data, limit, f"the shard {key}") if self._packed == "gzip" else data

    def _index(self, key: str, part: int) -> Index:
        """Return the index of a part of a shard, of no chunks where nothing lies there."""
        with self._lock:
            if (found := self._kept.get((key, part))) is not None:
                self._kept.move_to_end((key, part))
                return found
        found = self._read_index(key, part)
        with self._lock:
            self._bytes_kept += ENTRY + found.nbytes if (key, part) not in self._kept else 0
            self._kept[key, part] = found
            while self._bytes_kept > KEPT:
                _, last = self._kept.popitem(last=False)
                self._bytes_kept -= ENTRY + last.nbytes
        return found

    def _read_index(self, key: str, part: int) -> Index:
        ends = self._folder.read(key, 16, 16 * part, 16)
        if ends is not None and len(ends) != 16:
            raise VolumeError(f"the shard {key} is cut short")
        start, end = (0, 0) if ends is None else (int(n) for n in np.frombuffer(ends, "<u8"))
        if start == end:
            return np.zeros((3, 0), np.uint64)
        data = self._bytes(key, start, end - start, INDEX)
        if self._index_packed == "gzip":
            data = unpacked(data, INDEX, f"the shard {key}")
        if len(data) % 24:
            raise VolumeError(f"the shard {key} has an index of {len(data)} bytes")
        index = np.frombuffer(data, "<u8").reshape(3, -1).astype(np.uint64)
        # Numbers are told from the one before, first bytes from the end of the one before; both wrap, as uint64.
        index[0] = np.cumsum(index[0])
        index[1] = np.cumsum(index[1]) + np.cumsum(index[2]) - index[2]
        numbers = index[0]
        if (numbers[1:] <= numbers[:-1]).any() or int(numbers.max(initial=0)) >> self._bits:
            raise VolumeError(f"the shard {key} has an index of numbers that no chunks have")
        return index

    def _bytes(self, key: str, start: int, size: int, limit: int) -> bytes:
        """Return bytes that are counted from the end of a shard's first index."""
        first = (16 << self._parts) + start
        if not 0 <= size <= limit or first >= 1 << 62:
            raise VolumeError(f"the shard {key} names {size} bytes from {start} on")
        data = self._folder.read(key, limit, first, size)
        if data is None or len(data) != size:
            raise VolumeError(f"the shard {key} is cut short")
        return data


def unpacked(data: bytes, limit: int, what: str) -> bytes:
    """Return what gzip data hold, at most so many bytes; VolumeError says of `what` that it is damaged."""
    try:
        return inflated("gzip", data, limit)
    except Exception as error:  # zlib has errors of its own
        refuse_own(error)
        raise VolumeError(f"{what} is damaged ({reason(error)})") from error


def morton(place: Sequence[int], grid: Sequence[int]) -> int:
    """Return the bits of x, y, z in turns, the lowest first; of an axis as many as its numbers of chunks have."""
    found = into = 0
    bits = [(n - 1).bit_length() for n in grid]
    for bit in range(max(bits)):
        for at, most in zip(place, bits, strict=True):
            if bit < most:
                found |= (at >> bit & 1) << into
                into += 1
    return found


def hashes(number: int, kind: str) -> int:
    """Return the hash of a number below 2^64, itself below 2^64."""
    return number if kind == "identity" else _murmur(number)


def _murmur(number: int) -> int:
    """Return the first 64 bits of MurmurHash3_x86_128 (A. Appleby), seed 0, of the eight bytes of a number."""
    # Eight bytes are no whole block: they are what is left behind the blocks, and half of the four words stay 0.
    low = _rolled(number & _WORD, 0x239B961B, 15, 0xAB0E9789)
    high = _rolled(number >> 32, 0xAB0E9789, 16, 0x38B34AE5)
    words = [_mixed(it) for it in _added([low ^ 8, high ^ 8, 8, 8])]
    first, second, *_ = _added(words)
    return first | second << 32


def _rolled(word: int, before: int, bits: int, after: int) -> int:
    word = word * before & _WORD
    return ((word << bits | word >> (32 - bits)) & _WORD) * after & _WORD


def _added(words: list[int]) -> list[int]:
    """Return the sum of all words, and what each of the others is with it."""
    total = sum(words) & _WORD
    return [total, *((word + total) & _WORD for word in words[1:])]


def _mixed(word: int) -> int:
    word = (word ^ word >> 16) * 0x85EBCA6B & _WORD
    word = (word ^ word >> 13) * 0xC2B2AE35 & _WORD
    return word ^ word >> 16


def _bits(given: dict[str, Any], key: str, name: str) -> int:
    found = given.get(key)
    if type(found) is not int or not 0 <= found <= 64:
        raise VolumeError(f"{name}: sharding.{key} must be 0 to 64; found {str(found)[:60]}")
    return found


def _one_of(known: Sequence[str], found: Any, key: str, name: str) -> str:
    if found not in known:
        raise VolumeError(
            f"{name}: sharding.{key} is {str(found)[:60]}; {', '.join(known)} are read"
        )
    return str(found)
