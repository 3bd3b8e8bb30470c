"""Lines of voxels smoothed by weights: blur along one axis after the other."""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.memory import floats
from znnpy_kernels.machine.native import native


@part
def _along(found: Any, read: Any, count: int, weight: Any, radius: int) -> None:
    """Smooth one line of neighbours."""
    for i in range(count):
        found[i] = weight[radius] * read[i]
    for k in range(2 * radius + 1):
        by = k - radius
        if by == 0 or weight[k] == 0:
            continue
        first, last = min(count, max(0, -by)), max(0, min(count, count - by))
        for i in range(first):
            found[i] += weight[k] * read[0]
        for i in range(first, last):
            found[i] += weight[k] * read[i + by]
        for i in range(max(first, last), count):
            found[i] += weight[k] * read[count - 1]


@part
def _across(found: Any, read: Any, count: int, width: int, weight: Any, radius: int) -> None:
    """Smooth `width` lines at once, whose voxels are so far apart."""
    for i in range(count):
        here = i * width
        for x in range(width):
            found[here + x] = weight[radius] * read[here + x]
        for k in range(2 * radius + 1):
            if k == radius or weight[k] == 0:
                continue
            other = min(max(i + k - radius, 0), count - 1) * width
            for x in range(width):
                found[here + x] += weight[k] * read[other + x]


@native("void(int64, int64, int64, int64, int64, int64, int64, int64)")
def smoothed_lines(
    target: int,
    source: int,
    blocks: int,
    count: int,
    width: int,
    weights: int,
    radius: int,
    each: int,
) -> None:
    """Write sums of the 2 radius + 1 neighbours along an axis, float32 (blocks, count, width); the ends go on.

    `weights`: float32 (blocks / each, 2 radius + 1), of `each` blocks alike; weights of 0 cost nothing.
    """
    for block in range(blocks):
        weight = floats(weights + 4 * (block // each) * (2 * radius + 1))
        place = 4 * block * count * width
        found, read = floats(target + place), floats(source + place)
        if width == 1:
            _along(found, read, count, weight, radius)
        else:
            _across(found, read, count, width, weight, radius)
