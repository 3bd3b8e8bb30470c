"""What an ONNX file that `znnpy export` wrote says of its run: preparation, window, targets and loss."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from znnpy.errors import ModelFileError
from znnpy.interop.learned import Learned

WRITTEN_BY = "znnpy_version"
MOST = 1 << 16  # characters of a fact


@dataclass(frozen=True)
class OwnFile:
    """Keys of `data`, unchecked, the voxels (z, y, x) of a window, and what the network learned."""

    data: Mapping[str, Any]
    window: tuple[int, int, int]
    learned: Learned = field(default_factory=Learned)


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
    said = ("targets", "losses", "loss_weights")
    learned = Learned(*(_listed(facts, key) if key in facts else () for key in said))
    return OwnFile({**data, **learned.data()}, max(sizes, key=prod), learned)


def _object(facts: Mapping[str, str], key: str) -> dict[str, Any]:
    found = _read(facts, key)
    if not isinstance(found, dict):
        raise _wrong(facts, key, "an object")
    return found


def _listed(facts: Mapping[str, str], key: str) -> list[Any]:
    found = _read(facts, key)
    if not isinstance(found, list):
        raise _wrong(facts, key, "a list")
    return found


def _read(facts: Mapping[str, str], key: str) -> Any:
    text = facts.get(key, "")
    try:
        return json.loads(text) if len(text) <= MOST else None
    except (ValueError, RecursionError):
        return None


def _wrong(facts: Mapping[str, str], key: str, needs: str) -> ModelFileError:
    text = facts.get(key, "")[:60]
    return ModelFileError(f"its metadata {key} are {text!r}, and must be {needs} of JSON")


def _size(shape: Any) -> tuple[int, int, int]:
    if not (
        isinstance(shape, list) and len(shape) == 3 and all(type(n) is int and n > 0 for n in shape)
    ):
        raise ModelFileError(
            f"its metadata output_shapes hold {str(shape)[:60]}, and must hold three sizes, z, y, x"
        )
    z, y, x = shape
    return z, y, x
