"""What an ONNX file that `znnpy export` wrote says of its run: how images are prepared, and the window."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from znnpy.errors import ModelFileError

WRITTEN_BY = "znnpy_version"
MOST = 1 << 16  # characters of a fact


@dataclass(frozen=True)
class OwnFile:
    """Keys of `data`, unchecked, and the voxels (z, y, x) of a window."""

    data: Mapping[str, Any]
    window: tuple[int, int, int]


def own_file(facts: Mapping[str, str]) -> OwnFile | None:
    """Return what the metadata of a file say, None for those of other programs; ModelFileError for damaged ones."""
    if WRITTEN_BY not in facts or "normalize" not in facts:
        return None
    data = {key: _object(facts, key) for key in ("normalize", "prepare") if key in facts}
    sizes = [_size(shape) for shape in _object(facts, "output_shapes").values()]
    if not sizes:
        raise ModelFileError(
            "its metadata output_shapes are empty, and hold a window of each output as a rule"
        )
    return OwnFile(data, max(sizes, key=prod))


def _object(facts: Mapping[str, str], key: str) -> dict[str, Any]:
    text = facts.get(key, "")
    try:
        found = json.loads(text) if len(text) <= MOST else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ModelFileError(f"its metadata {key} are {text[:60]!r}, and must be an object of JSON")
    return found


def _size(shape: Any) -> tuple[int, int, int]:
    if not (
        isinstance(shape, list) and len(shape) == 3 and all(type(n) is int and n > 0 for n in shape)
    ):
        raise ModelFileError(
            f"its metadata output_shapes hold {str(shape)[:60]}, and must hold three sizes, z, y, x"
        )
    z, y, x = shape
    return z, y, x
