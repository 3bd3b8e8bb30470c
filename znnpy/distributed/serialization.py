"""Serialises values that ranks exchange: bytes as they are, all else as JSON; nothing is ever unpickled."""

from __future__ import annotations

import json
from collections.abc import Sequence
from struct import Struct
from typing import Any

Value = Any
"""bytes, or a JSON value: numbers (floats keep their bits), text, lists, dicts with text keys, None."""

# The same on all hosts, whatever their byte order.
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
    if any(part[:1] == _BYTES for part in parts):
        return [unpacked(part) for part in parts]
    # In one call: hundreds of ranks tell each other a few numbers in every update.
    values: list[Value] = json.loads(b"[" + b",".join(part[1:] for part in parts) + b"]")
    return values


def joined(parts: Sequence[bytes]) -> bytes:
    """Return several messages as one."""
    return b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def split(data: bytes) -> list[bytes]:
    """Return the messages that `joined` made one of."""
    parts, at = list[bytes](), 0
    while at < len(data):
        begin = at + _LENGTH.size
        # The length stands before each part, 8 bytes.
        at = begin + int(_LENGTH.unpack_from(data, begin - _LENGTH.size)[0])
        parts.append(data[begin:at])
    return parts
