"""Arrays and a record as the content of one file, with a digest over all: what was cut short or changed is not read.

A first line, the length of the head as eight bytes (little endian), the head as JSON, arrays one behind the other, each
packed by zlib, and SHA-256 of all that is before. `name`: a key, which the head repeats.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from znnpy.graph.builder import zeros_on_a_line

FIRST_LINE = b"znnpy graphs 1\n"
LENGTH, DIGEST = 8, hashlib.sha256().digest_size
LEVEL = 1
"""Of zlib: more takes longer than it saves."""

PIECE = 1 << 16  # bytes that are unpacked at once

Arrays = Mapping[str, NDArray[Any]]


class Packed(NamedTuple):
    """An array as a file has it."""

    dtype: str
    shape: tuple[int, ...]
    content: bytes

    @classmethod
    def of(cls, array: NDArray[Any]) -> Packed:
        """Return an array packed, which is not needed any more."""
        octets = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return cls(array.dtype.str, array.shape, zlib.compress(octets.data, LEVEL))


def written(name: str, record: Mapping[str, Any], arrays: Mapping[str, Packed]) -> bytes:
    """Return the content of a file."""
    told = [[own, it.dtype, it.shape, len(it.content)] for own, it in arrays.items()]
    head = json.dumps({"key": name, "record": record, "arrays": told}).encode()
    start = FIRST_LINE, len(head).to_bytes(LENGTH, "little"), head
    parts = [*start, *(it.content for it in arrays.values())]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return b"".join([*parts, digest.digest()])


def read(name: str, content: bytes) -> tuple[dict[str, Any], Arrays] | None:
    """Return record and arrays of a file, on lines; None if it is not what was written under this name."""
    whole = memoryview(content)
    inside = whole[:-DIGEST]
    start = inside[: len(FIRST_LINE)]
    if start != FIRST_LINE or hashlib.sha256(inside).digest() != whole[-DIGEST:]:
        return None
    first = len(FIRST_LINE) + LENGTH
    end = first + int.from_bytes(inside[first - LENGTH : first], "little")
    head = json.loads(bytes(inside[first:end]))
    if head["key"] != name:
        return None
    return head["record"], dict(_arrays(head["arrays"], inside[end:]))


def _arrays(told: list[Any], packed: memoryview) -> Iterator[tuple[str, NDArray[Any]]]:
    for own, dtype, shape, size in told:
        yield own, _unpacked(packed[:size], dtype, shape)
        packed = packed[size:]


def _unpacked(packed: memoryview, dtype: str, shape: list[int]) -> NDArray[Any]:
    kind = np.dtype(dtype)
    size = prod(shape) * kind.itemsize
    octets = zeros_on_a_line(-(-size // 8)).view(np.uint8)[:size]
    unpacking, end = zlib.decompressobj(), 0
    # Piece by piece, so that words of large graphs are not there twice.
    for first in range(0, len(packed), PIECE):
        piece = unpacking.decompress(packed[first : first + PIECE])
        octets[end : end + len(piece)] = np.frombuffer(piece, np.uint8)
        end += len(piece)
    return octets.view(kind).reshape(shape)
