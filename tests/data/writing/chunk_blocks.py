"""Folders of chunks that are written block by block, and what other programs read of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from znnpy.data.writing.block_output import OutputSpec, open_output
from znnpy.data.writing.destination import Destination

Triple = tuple[int, int, int]
PLACE = {"resolution": [40.0, 8.0, 4.0], "offset": [80.0, -16.0, 12.0]}


def values(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 100, shape).astype(dtype)


def spec_of(array: np.ndarray, block: Triple, **more: Any) -> OutputSpec:
    c, z, y, x = array.shape
    attributes = {**PLACE, **more.pop("attributes", {})}
    return OutputSpec((c, z, y, x), array.dtype, block, attributes, {"job": "this"}, **more)


def write_blocks(
    path: Path,
    array: np.ndarray,
    block: Triple,
    count: int | None = None,
    dataset: str = "",
    **more: Any,
) -> Path:
    """Blocks that are not written yet, or `count` of them; finished with the last one."""
    spec = spec_of(array, block, **more)
    with open_output(Destination(path, dataset), spec) as out:
        left = [region for region in reversed(spec.blocks()) if region not in out.done]
        for lower, upper in left[:count]:
            at = tuple(slice(a, b) for a, b in zip(lower, upper, strict=True))
            out.write(lower, array[(slice(None), *at)])
        if count is None or count >= len(left):
            out.finish()
    return path


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
