"""Serialises values that ranks exchange: bytes as they are, all else as JSON; nothing is ever unpickled."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, pairwise
from struct import Struct
from typing import Any

Value = Any
"""bytes, or a JSON value: numbers (floats keep their bits), text, lists, dicts with text keys, None."""

# The same on all hosts, whatever their byte order: the number of parts, then the length of each.
_LENGTH = Struct("<Q")
_BYTES, _JSON = b"b", b"j"


def packed(value: Value) -> bytes:
    """Return a value as bytes; raise TypeError for one that JSON cannot hold."""
    # A byte in front tells both apart, so bytes need not go through JSON as text.
    if isinstance(value, bytes):
        return _BYTES + value
    return _JSON + json.dumps(value).encode()


def unpacked(data: bytes) -> Value:
    """Return the value that `packed` made bytes of."""
    # JSON keeps the bits of floats: Python writes the shortest text that reads back the same.
    return data[1:] if data[:1] == _BYTES else json.loads(data[1:])


def all_unpacked(parts: Sequence[bytes]) -> list[Value]:
    """Return the values of several messages."""
    if _BYTES in {part[:1] for part in parts}:
        return [unpacked(part) for part in parts]
    # In one call: hundreds of ranks tell each other a few numbers in every update.
    values: list[Value] = json.loads(b"[" + b",".join(part[1:] for part in parts) + b"]")
    return values


def joined(parts: Sequence[bytes]) -> bytes:
    """Return several messages as one."""
    return _lengths(1 + len(parts)).pack(len(parts), *map(len, parts)) + b"".join(parts)


def split(data: bytes) -> list[bytes]:
    """Return the messages that `joined` made one of."""
    (count,) = _LENGTH.unpack_from(data)
    _, *lengths = _lengths(1 + count).unpack_from(data)
    ends = list(accumulate(lengths, initial=(1 + count) * _LENGTH.size))
    return [data[begin:end] for begin, end in pairwise(ends)]


# By number, since their sizes are few; in one call, as hundreds of ranks exchange values in every update.
@cache
def _lengths(count: int) -> Struct:
    """Return so many lengths."""
    return Struct(f"<{count}Q")
