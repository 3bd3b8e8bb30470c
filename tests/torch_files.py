"""PyTorch's files, and pickles of any names, written without PyTorch: opcode by opcode."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

KINDS = {"<f4": "FloatStorage", "<f8": "DoubleStorage", "<f2": "HalfStorage", "<i8": "LongStorage"}


@dataclass(frozen=True)
class Call:
    """A call of a name with arguments; `state` is set on what comes of it."""

    module: str
    name: str
    arguments: tuple[Any, ...] = ()
    state: Any = None


@dataclass(frozen=True)
class Named:
    module: str
    name: str


@dataclass(frozen=True)
class Kept:
    """An id that the reader resolves."""

    of: tuple[Any, ...]


def pickled(value: Any) -> bytes:
    """A pickle of protocol 2."""
    return b"\x80\x02" + _body(value) + b"."


def _body(value: Any) -> bytes:
    match value:
        case None:
            return b"N"
        case bool():
            return b"\x88" if value else b"\x89"
        case int():
            return b"\x8a\x08" + struct.pack("<q", value)
        case float():
            return b"G" + struct.pack(">d", value)
        case str():
            text = value.encode()
            return b"X" + struct.pack("<I", len(text)) + text
        case bytes():
            return b"B" + struct.pack("<I", len(value)) + value
        case tuple():
            return b"(" + b"".join(map(_body, value)) + b"t"
        case list():
            return b"](" + b"".join(map(_body, value)) + b"e"
        case dict():
            items = b"".join(_body(key) + _body(inside) for key, inside in value.items())
            return b"}(" + items + b"u"
        case Named():
            return f"c{value.module}\n{value.name}\n".encode()
        case Call():
            called = _body(Named(value.module, value.name)) + _body(value.arguments) + b"R"
            return called + (_body(value.state) + b"b" if value.state is not None else b"")
        case Kept():
            return _body(value.of) + b"Q"
    raise TypeError(value)


def tensor(key: str, shape: tuple[int, ...], count: int, dtype: str = "<f4", **more: Any) -> Call:
    """A tensor of a whole storage, or of what `offset` and `strides` say."""
    strides = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
    kept = Kept(("storage", Named("torch", KINDS[dtype]), key, "cpu", count))
    hooks = Call("collections", "OrderedDict")
    place = (more.get("offset", 0), more.get("claimed", shape), more.get("strides", strides))
    return Call("torch._utils", "_rebuild_tensor_v2", (kept, *place, False, hooks))


def write(path: Path, pickle: bytes, storages: Mapping[str, bytes], **more: Any) -> Path:
    """The archive."""
    with zipfile.ZipFile(path, "w", **more) as archive:
        archive.writestr("archive/data.pkl", pickle)
        archive.writestr("archive/byteorder", "little")
        for key, data in storages.items():
            archive.writestr(f"archive/data/{key}", data)
        archive.writestr("archive/version", "3\n")
    return path


def save(path: Path, arrays: Mapping[str, np.ndarray], key: str = "state", **beside: Any) -> Path:
    """A state dict, and other values beside it under names of their own."""
    state: dict[str, Any] = {}
    storages = {}
    for number, (name, array) in enumerate(arrays.items()):
        state[name] = tensor(str(number), array.shape, array.size, array.dtype.str)
        storages[str(number)] = np.ascontiguousarray(array).tobytes()
    return write(path, pickled({key: state, **beside}), storages)
