"""Voxels of images as networks want them: (value - shift) * scale in float32."""

from __future__ import annotations

from typing import Any

from numba import float32, types

from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.memory import bytes_, floats, shorts
from znnpy_kernels.machine.native import native

KINDS = ("uint8", "uint16", "float32")
"""Types of voxels, by number."""


@part
def _row(target: Any, source: Any, step: int, count: int, shift: float, scale: float) -> None:
    """Write a row, whose voxels lie `step` of them apart."""
    # Vectors are loaded where steps are known.
    if step == 1:
        for x in range(count):
            target[x] = (float32(source[x]) - shift) * scale
    elif step == -1:
        for x in range(count):
            target[x] = (float32(source[-x]) - shift) * scale
    else:
        for x in range(count):
            target[x] = (float32(source[step * x]) - shift) * scale


@native(types.void(*[types.int64] * 12, types.float64, types.float64))
def normalized_voxels(
    target: int,
    below: int,
    beside: int,
    source: int,
    deep: int,
    down: int,
    across: int,
    depth: int,
    height: int,
    width: int,
    kind: int,
    size: int,
    shift: float,
    scale: float,
) -> None:
    """Write float32 (depth, height, width), the planes of which are `below` bytes apart, and rows `beside`.

    `source`: voxels of a number of KINDS, `size` bytes each, which lie `deep`, `down` and `across` bytes apart along z,
    y and x; these may be negative.
    """
    less, by = float32(shift), float32(scale)
    for z in range(depth):
        for y in range(height):
            found = floats(target + below * z + beside * y)
            here, step = source + deep * z + down * y, across // size
            if kind == 0:
                _row(found, bytes_(here), step, width, less, by)
            elif kind == 1:
                _row(found, shorts(here), step, width, less, by)
            else:
                _row(found, floats(here), step, width, less, by)
