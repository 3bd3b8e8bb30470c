"""Windows in float64: the input voxels under each tap, padding, its limits, and where its gradients go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Literal

import numpy as np

from znnpy.layers.types import AXES, Array, BorderName, Numbers, Sides, Triple

Box = tuple[slice, ...]


def shrunk(edge: Numbers, dilation: Triple, shape: tuple[int, ...]) -> Triple:
    """Return the output shape (z, y, x) of a window for an input shape; not positive if that is too small."""
    z, y, x = (
        (have - (size - 1) * step - 1) // stride + 1
        for have, size, step, stride in zip(shape, edge.size, dilation, edge.stride, strict=True)
    )
    return (z, y, x)


def taps(edge: Numbers, dilation: Triple, shape: tuple[int, ...]) -> Iterator[tuple[Triple, Box]]:
    """Yield every tap in z, y, x order with the box of input voxels that it meets, for an output shape (z, y, x)."""
    for tap in product(*map(range, edge.size)):
        boxes = (
            slice(at * step, at * step + (count - 1) * stride + 1, stride)
            for at, step, count, stride in zip(tap, dilation, shape, edge.stride, strict=True)
        )
        yield (tap[0], tap[1], tap[2]), (slice(None), slice(None), *boxes)


def padding_within(edge: Numbers, *, half: bool = False) -> Iterable[str]:
    """Yield what is wrong with a padding, if anything.

    Every filter must reach at least one voxel that is no padding; with `half`, as PyTorch has it for pooling,
    padding is at most half of the window.
    """
    if edge.padding == "same":
        if max(edge.stride) > 1:
            yield f"padding same needs stride 1, not {edge.stride}; write how many voxels"
        return
    for axis, pair, size, step in zip(AXES, edge.padding, edge.size, edge.sparsity, strict=True):
        most = size // 2 if half else (size - 1) * step
        if max(pair) > most:
            of = f"half of the window, {size}" if half else f"the filter's reach, {size} taps"
            far = f" {step} apart" if step > 1 else ""
            yield f"padding {max(pair)} along {axis} is more than {most}, {of}{far}"
            return  # one axis is enough to say: the others mostly have the same


MODES: dict[BorderName, Literal["constant", "edge", "reflect"]] = {
    "zeros": "constant",
    "replicate": "edge",
    "reflect": "reflect",
}


def sides(edge: Numbers, dilation: Triple) -> Sides:
    """Return an edge's padding in voxels before and after, z y x; `same` keeps the size, half of it before."""
    if edge.padding != "same":
        return edge.padding
    reach = [(size - 1) * step for size, step in zip(edge.size, dilation, strict=True)]
    z, y, x = ((n // 2, n - n // 2) for n in reach)
    return z, y, x


def framed(values: Array, padding: Sides, border: BorderName = "zeros", value: float = 0) -> Array:
    """Return values with padding around them, `value` where the border is zeros; the array itself without padding."""
    if not any(map(any, padding)):
        return values
    more = {"constant_values": value} if border == "zeros" else {}
    found: Array = np.pad(values, ((0, 0), (0, 0), *padding), MODES[border], **more)  # type: ignore[call-overload]
    return found


def folded(gradient: Array, padding: Sides, border: BorderName = "zeros") -> Array:
    """Return the gradient by the input of `framed`: that of a copied voxel is added to its original's."""
    for axis, (before, after) in enumerate(padding, start=2):
        size = gradient.shape[axis] - before - after
        if border == "zeros":
            gradient = np.take(gradient, range(before, before + size), axis)
        elif before or after:
            came_from = np.pad(np.arange(size), (before, after), MODES[border])
            whole = np.zeros((*gradient.shape[:axis], size, *gradient.shape[axis + 1 :]))
            np.add.at(np.moveaxis(whole, axis, 0), came_from, np.moveaxis(gradient, axis, 0))
            gradient = whole
    return gradient
