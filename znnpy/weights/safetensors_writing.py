"""safetensors files, written: eight bytes of length, a JSON header, then plain numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, BinaryIO

from znnpy.weights.safetensors import TYPES
from znnpy.weights.stored_tensor import Array, raw_bytes

ALIGNED = 8  # bytes: numbers begin at a multiple
_NAMES = {dtype: name for name, dtype in TYPES.items()}


def write_safetensors(
    file: BinaryIO, tensors: Mapping[str, Array], about: Mapping[str, str]
) -> None:
    """Write tensors by name, in this order, and texts `about` them; ValueError for a type that the format lacks."""
    header: dict[str, Any] = {"__metadata__": dict(about)} if about else {}
    place = 0
    for name, array in tensors.items():
        dtype = array.dtype.newbyteorder("<").str
        if dtype not in _NAMES:
            raise ValueError(f"safetensors files do not hold {array.dtype}")
        after = place + array.nbytes
        header[name] = {
            "dtype": _NAMES[dtype],
            "shape": list(array.shape),
            "data_offsets": [place, after],
        }
        place = after
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNED)
    file.write(len(text).to_bytes(8, "little") + text)
    for array in tensors.values():
        file.write(raw_bytes(array))
