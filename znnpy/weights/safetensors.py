"""safetensors files: eight bytes of length, a JSON header, then plain numbers."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from znnpy.errors import ModelFileError, reason
from znnpy.weights.stored_tensor import BFLOAT16, Array, Storage, Tensor

HEADER = 16 << 20  # bytes; the format allows 100 MB, and 10,000 tensors take 1 MB
TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": BFLOAT16, "I64": "<i8", "I32": "<i4", "I16": "<i2",
    "I8": "|i1", "U8": "|u1", "U16": "<u2", "U32": "<u4", "U64": "<u8", "BOOL": "|b1",
}  # fmt: skip


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file by name. Raises ModelFileError for files that are damaged, or are none."""
    try:
        return _read(path)
    except (ValueError, TypeError, KeyError, OSError, RecursionError) as error:
        raise ModelFileError(
            f"{path} is no sound safetensors file: {reason(error)[:200]}"
        ) from error


def _read(path: Path) -> dict[str, Tensor]:
    if not path.is_file() or path.stat().st_size < 8:
        raise ValueError("it has no header")
    data: Array = np.fromfile(path, np.uint8)
    length = int.from_bytes(data[:8].tobytes(), "little")
    if not 2 <= length <= min(HEADER, data.size - 8):
        raise ValueError("the length of its header is impossible")
    header = json.loads(data[8 : 8 + length].tobytes())
    if not isinstance(header, dict):
        raise ValueError("its header is no JSON object")
    header.pop("__metadata__", None)
    return {name: _tensor(name, said, data[8 + length :]) for name, said in header.items()}


def _tensor(name: str, said: Any, data: Array) -> Tensor:
    kind, shape, (first, last) = said["dtype"], said["shape"], said["data_offsets"]
    if kind not in TYPES:
        raise ValueError(f"{name[:60]!r} is of type {str(kind)[:20]}, which is not read")
    if (
        not all(type(it) is int for it in (first, last, *shape))
        or not 0 <= first <= last <= data.size
    ):
        raise ValueError(f"{name[:60]!r} lies outside the file")
    dtype = TYPES[kind]
    size = 2 if dtype == BFLOAT16 else np.dtype(dtype).itemsize
    if min(shape, default=0) < 0 or prod(shape) * size != last - first:
        raise ValueError(f"{name[:60]!r} has another size than its shape says")
    strides = tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
    part = data[first:last]
    return Tensor(Storage(name, dtype, prod(shape), lambda: part), 0, tuple(shape), strides)
