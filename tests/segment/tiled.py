"""Methods with tiles of another size."""

from __future__ import annotations

from typing import Any

from znnpy.data.volume import Triple
from znnpy.segment.method import METHODS, Method


def with_tile(method: str, tile: Triple, **more: Any) -> Method:
    entry = METHODS[method]
    return Method(**{**vars(entry), "tile": tile, **more})
