"""PyTorch's .pth files, written without PyTorch: a zip archive of a pickle and plain numbers, as `torch.save` does."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator, Mapping
from typing import BinaryIO

import numpy as np

from znnpy.weights.stored_tensor import Array, raw_bytes
from znnpy.weights.torch_names import STORAGES

ROOT = "archive"
LARGE = 1 << 31  # bytes of a member from which on its size is written as 64 bits
_CLASSES = {dtype: name for name, dtype in STORAGES.items()}
_EARLIEST = (1980, 1, 1, 0, 0, 0)  # of a member: equal weights make equal files


def write_torch(file: BinaryIO, tensors: Mapping[str, Array]) -> None:
    """Write a state dict by name, in this order; `torch.load(..., weights_only=True)` reads it as an OrderedDict.

    An array that has several names is stored once; ValueError for a type that PyTorch does not have.
    """
    stored = {id(array): array for array in tensors.values()}
    keys = {one: str(number) for number, one in enumerate(stored)}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        _member(archive, "data.pkl", _pickle(tensors, keys))
        _member(archive, "byteorder", b"little")
        for one, array in stored.items():
            _member(archive, f"data/{keys[one]}", raw_bytes(array))
        _member(archive, "version", b"3\n")


def _member(archive: zipfile.ZipFile, name: str, data: bytes | memoryview) -> None:
    info = zipfile.ZipInfo(f"{ROOT}/{name}", _EARLIEST)
    with archive.open(info, "w", force_zip64=len(data) >= LARGE) as file:
        file.write(data)


def _pickle(tensors: Mapping[str, Array], keys: Mapping[int, str]) -> bytes:
    """Return the pickle, of protocol 2, of an ordered dict of tensors; `keys` of storages by array."""
    parts = [b"\x80\x02", _global("collections", "OrderedDict"), b")R("]
    for name, array in tensors.items():
        parts += [_text(name), *_tensor(keys[id(array)], array)]
    return b"".join([*parts, b"u."])


def _tensor(key: str, array: Array) -> Iterator[bytes]:
    """Yield the opcodes of a tensor that is the whole of a storage."""
    dtype = array.dtype.newbyteorder("<").str
    if dtype not in _CLASSES:
        raise ValueError(f"PyTorch's files do not hold {array.dtype}")
    yield _global("torch._utils", "_rebuild_tensor_v2")
    yield b"((" + _text("storage") + _global("torch", _CLASSES[dtype]) + _text(key) + _text("cpu")
    yield _number(array.size) + b"tQ" + _number(0)
    steps = [int(np.prod(array.shape[axis + 1 :])) for axis in range(array.ndim)]
    yield _numbers(array.shape) + _numbers(steps)
    yield b"\x89" + _global("collections", "OrderedDict") + b")RtR"  # no gradient, no hooks


def _global(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def _text(text: str) -> bytes:
    data = text.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def _number(value: int) -> bytes:
    return b"\x8a\x08" + struct.pack("<q", value)


def _numbers(values: tuple[int, ...] | list[int]) -> bytes:
    return b"(" + b"".join(map(_number, values)) + b"t"
