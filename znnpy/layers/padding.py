"""Voxels beyond an image: how many, what they are, and where their gradients go."""

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
    """The padding of an edge in voxels before and after, z y x; `same` keeps the size, half of it before."""
    if edge.padding != "same":
        return edge.padding
    reach = [(size - 1) * step for size, step in zip(edge.size, dilation, strict=True)]
    z, y, x = ((n // 2, n - n // 2) for n in reach)
    return z, y, x


def framed(image: Array, padding: Sides, border: BorderName = "zeros", value: float = 0) -> Array:
    """Images with voxels round them; `value` where the border is zeros. The image itself without any."""
    if not any(map(any, padding)):
        return image
    more = {"constant_values": value} if border == "zeros" else {}
    found: Array = np.pad(image, ((0, 0), (0, 0), *padding), MODES[border], **more)  # type: ignore[call-overload]
    return found


def folded(gradient: Array, padding: Sides, border: BorderName = "zeros") -> Array:
    """Gradient of `framed` for its image: what came from a voxel goes back to it."""
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
