"""Padding in float64: how many voxels on each side, how they are filled, and where their gradients go."""

from __future__ import annotations

from typing import Literal

import numpy as np

from znnpy.layers.operation import Numbers
from znnpy.layers.types import Array, BorderName, Sides, Triple

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
