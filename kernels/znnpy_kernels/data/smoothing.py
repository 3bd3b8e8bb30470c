"""Lines of voxels smoothed by weights: blur along one axis after the other."""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.memory import floats
from znnpy_kernels.machine.native import native


@part
def _along(found: Any, read: Any, count: int, weight: Any, radius: int) -> None:
    """Smooth one line of neighbours; weights are the same on both sides, and end with the first 0."""
    for i in range(count):
        found[i] = weight[radius] * read[i]
    for k in range(1, radius + 1):
        if weight[radius + k] == 0:
            break
        first = min(k, count)
        for i in range(first):
            found[i] += weight[radius + k] * (read[0] + read[min(i + k, count - 1)])
        for i in range(first, count - k):
            found[i] += weight[radius + k] * (read[i - k] + read[i + k])
        for i in range(max(first, count - k), count):
            found[i] += weight[radius + k] * (read[i - k] + read[count - 1])


@part
def _across(found: Any, read: Any, count: int, width: int, weight: Any, radius: int) -> None:
    """Smooth `width` lines at once, whose voxels are so far apart; weights are the same on both sides."""
    for i in range(count):
        here = i * width
        for x in range(width):
            found[here + x] = weight[radius] * read[here + x]
        for k in range(1, radius + 1):
            if weight[radius + k] == 0:
                break
            before, behind = max(i - k, 0) * width, min(i + k, count - 1) * width
            for x in range(width):
                found[here + x] += weight[radius + k] * (read[before + x] + read[behind + x])


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

    `weights`: float32 (blocks / each, 2 radius + 1), of `each` blocks alike; the same on both sides, 0 from some on.
    """
    for block in range(blocks):
        weight = floats(weights + 4 * (block // each) * (2 * radius + 1))
        place = 4 * block * count * width
        found, read = floats(target + place), floats(source + place)
        if width == 1:
            _along(found, read, count, weight, radius)
        else:
            _across(found, read, count, width, weight, radius)
