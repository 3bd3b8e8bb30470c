"""The edge kinds `max_filter` and `max_pool`: the largest voxel of every window."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from znnpy.fields import Size3, Strict
from znnpy.layers.kind import Applied, Array, EdgeKind
from znnpy.layers.taps import shrunk, taps


class MaxFilterLayer(Strict):
    """A sliding maximum at every voxel; what follows becomes sparse by `stride`."""

    size: Size3 = Field(description="Window in voxels, z y x; one number is a cube.")
    stride: Size3 | None = Field(
        default=None,
        description="Factor by which what follows becomes sparser, z y x (default: size).",
    )


class MaxPoolLayer(Strict):
    """Max-pooling: the output is smaller by `stride`."""

    size: Size3 = Field(description="Window in voxels, z y x; one number is a cube.")
    stride: Size3 | None = Field(
        default=None, description="Stride in voxels, z y x (default: size)."
    )


def maximum(image: Array, at: Applied) -> Array:
    """Largest voxel of every window; NaN wins."""
    largest: Array = _windows(image, at).max(axis=0)
    return largest


def maximum_gradient(image: Array, gradient: Array, at: Applied) -> Array:
    """Gradient of `maximum` for its image; the first maximum in z, y, x order gets all of it."""
    winners = _windows(image, at).argmax(axis=0)
    output = np.zeros_like(image)
    for index, (_, box) in enumerate(taps(at.edge, at.dilation, gradient.shape[2:])):
        output[box] += np.where(winners == index, gradient, 0.0)
    return output


def _windows(image: Array, at: Applied) -> Array:
    """All window taps stacked in z, y, x order along a new first axis."""
    shape = shrunk(at.edge, at.dilation, image.shape[2:])
    return np.stack([image[box] for _, box in taps(at.edge, at.dilation, shape)])


MAX_FILTER = EdgeKind(
    name="max_filter",
    summary="Sliding maximum; what follows becomes sparse. In short: its size.",
    example="max_filter: {size: 2, stride: 2}  # stride: factor by which what follows becomes sparser",
    keys=MaxFilterLayer,
    short=("size", (int, list, tuple)),
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
    short=("size", (int, list, tuple)),
    forward=maximum,
    data_gradient=maximum_gradient,
    dense="max_filter",
    read=lambda keys: {"size": keys.size, "stride": keys.stride or keys.size},
)
