"""The taps of filters and windows, and the voxels under each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

from znnpy.layers.values import Triple

if TYPE_CHECKING:
    from znnpy.layers.edges import Numbers

Box = tuple[slice, ...]


def shrunk(edge: Numbers, dilation: Triple, shape: tuple[int, ...]) -> Triple:
    """Output shape (z, y, x) of a window for one input shape; not positive if that is too small."""
    z, y, x = (
        (have - (size - 1) * step - 1) // stride + 1
        for have, size, step, stride in zip(shape, edge.size, dilation, edge.stride, strict=True)
    )
    return (z, y, x)


def taps(edge: Numbers, dilation: Triple, shape: tuple[int, ...]) -> Iterator[tuple[Triple, Box]]:
    """Every tap in z, y, x order with the box of input voxels that it touches for one output shape."""
    for tap in product(*map(range, edge.size)):
        boxes = (
            slice(at * step, at * step + (count - 1) * stride + 1, stride)
            for at, step, count, stride in zip(tap, dilation, shape, edge.stride, strict=True)
        )
        yield (tap[0], tap[1], tap[2]), (slice(None), slice(None), *boxes)
