"""The edge kinds `max_filter` and `max_pool`: the largest voxel of every window."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from pydantic import Field

from znnpy.fields import Padding3, Size3, Strict
from znnpy.layers.edge_kind import Applied, EdgeKind
from znnpy.layers.operation import Numbers
from znnpy.layers.padding import folded, framed, sides
from znnpy.layers.taps import padding_within, shrunk, taps
from znnpy.layers.types import BARE, Array


class MaxFilterLayer(Strict):
    """A sliding maximum at every voxel; what follows becomes sparse by `stride`."""

    size: Size3 = Field(description="Window in voxels, z y x; one number is a cube.")
    stride: Size3 | None = Field(
        default=None,
        description="Factor by which what follows becomes sparser, z y x (default: size).",
    )


class PoolLayer(Strict):
    """A window that moves by a true stride."""

    size: Size3 = Field(description="Window in voxels, z y x; one number is a cube.")
    stride: Size3 | None = Field(
        default=None, description="Stride in voxels, z y x (default: size)."
    )
    padding: Padding3 = Field(
        default=BARE,
        description="Voxels round the feature map, z y x or pairs before and after, at most half the window; "
        "`same` keeps the size.",
    )


class MaxPoolLayer(PoolLayer):
    """Max-pooling: the output is smaller by `stride`. What is padded is never the largest."""


def maximum(image: Array, at: Applied) -> Array:
    """Largest voxel of every window; NaN wins."""
    largest: Array = _windows(image, at).max(axis=0)
    return largest


def maximum_gradient(image: Array, gradient: Array, at: Applied) -> Array:
    """Gradient of `maximum` for its image; the first maximum in z, y, x order gets all of it."""
    winners = _windows(image, at).argmax(axis=0)
    padding = sides(at.edge, at.dilation)
    output = np.zeros_like(framed(image, padding))
    for index, (_, box) in enumerate(taps(at.edge, at.dilation, gradient.shape[2:])):
        output[box] += np.where(winners == index, gradient, 0.0)
    return folded(output, padding)


def _windows(image: Array, at: Applied) -> Array:
    """All window taps stacked in z, y, x order along a new first axis."""
    whole = framed(image, sides(at.edge, at.dilation), value=-np.inf)
    shape = shrunk(at.edge, at.dilation, whole.shape[2:])
    return np.stack([whole[box] for _, box in taps(at.edge, at.dilation, shape)])


def pool_wrong(edge: Numbers) -> Iterable[str]:
    """What is wrong with the numbers of a pooling."""
    return padding_within(edge, half=True)


def pool_numbers(keys: Any) -> Mapping[str, Any]:
    """Numbers of a pooling; its stride is its size unless said."""
    stride = keys.stride or keys.size
    return {"size": keys.size, "stride": stride, "padding": keys.padding}


MAX_FILTER = EdgeKind(
    name="max_filter",
    summary="Sliding maximum; what follows becomes sparse. In short: its size.",
    example="max_filter: {size: 2, stride: 2}  # stride: factor by which what follows becomes sparser",
    keys=MaxFilterLayer,
    short=("size", (int, float, list, tuple)),
    forward=maximum,
    data_gradient=maximum_gradient,
    read=lambda keys: {"size": keys.size, "sparsens": keys.stride or keys.size},
    written=lambda edge: {"size": edge.size, "stride": edge.sparsens},
)
MAX_POOL = EdgeKind(
    name="max_pool",
    summary="Max-pooling with a true stride. In short: its size.",
    example="max_pool: {size: 2, stride: 2}    # true pooling, the output is smaller",
    keys=MaxPoolLayer,
    short=("size", (int, float, list, tuple)),
    forward=maximum,
    data_gradient=maximum_gradient,
    dense="max_filter",
    wrong=pool_wrong,
    read=pool_numbers,
)
