"""The edge kinds `max_filter` (ZNN's sliding maximum, dilates what follows), `max_pool` and `avg_pool`, in float64."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
from pydantic import Field

from znnpy.fields import Bool, Padding3, Size3, Strict
from znnpy.layers.edge_kind import Applied, EdgeKind
from znnpy.layers.sizes import AllSizes, windows
from znnpy.layers.types import BARE, Array, Numbers, Triple
from znnpy.layers.windows import folded, framed, padding_within, shrunk, sides, taps


class MaxFilterLayer(Strict):
    """A sliding maximum at every voxel; what follows is dilated by `stride` (ZNN's sparsity)."""

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
    """Max pooling: the output is smaller by `stride`. Padding is never the largest."""


def maximum(values: Array, at: Applied) -> Array:
    """Return the largest voxel of every window, of values (batch, channel, z, y, x); NaN wins."""
    largest: Array = _windows(values, at).max(axis=0)
    return largest


def maximum_gradient(values: Array, gradient: Array, at: Applied) -> Array:
    """Return the gradient by the input of `maximum`; the first maximum in z, y, x order gets all of it."""
    winners = _windows(values, at).argmax(axis=0)
    padding = sides(at.edge, at.dilation)
    output = np.zeros_like(framed(values, padding))
    for index, (_, box) in enumerate(taps(at.edge, at.dilation, gradient.shape[2:])):
        output[box] += np.where(winners == index, gradient, 0.0)
    return folded(output, padding)


def _windows(values: Array, at: Applied) -> Array:
    """Return all taps of all windows, stacked in z, y, x order along a new first axis."""
    whole = framed(values, sides(at.edge, at.dilation), value=-np.inf)
    shape = shrunk(at.edge, at.dilation, whole.shape[2:])
    return np.stack([whole[box] for _, box in taps(at.edge, at.dilation, shape)])


def pool_wrong(edge: Numbers) -> Iterable[str]:
    """Yield the problems of a pooling's numbers: padding beyond half of the window."""
    return padding_within(edge, half=True)


def pool_numbers(keys: Any) -> Mapping[str, Any]:
    """Return the numbers of a pooling from its keys; the stride is the size by default."""
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
    sizes=partial(windows, meeting=True),  # padding alone has no maximum
    dense="max_filter",
    wrong=pool_wrong,
    read=pool_numbers,
)


class AvgPoolLayer(PoolLayer):
    """Mean of every window: the output is smaller by `stride`."""

    count_padding: Bool = Field(
        default=True,
        description="Padding counts as zeros; false: only voxels of the feature map count.",
    )


def averaged(values: Array, at: Applied) -> Array:
    """Return the mean of every window, of values (batch, channel, z, y, x)."""
    return _sums(values, at) / _counts(values, at)


def averaged_gradient(values: Array, gradient: Array, at: Applied) -> Array:
    """Return the gradient by the input of `averaged`, of which only the shape is used."""
    padding = sides(at.edge, at.dilation)
    shares = gradient / _counts(values, at)
    output = np.zeros_like(framed(values, padding))
    for _, box in taps(at.edge, at.dilation, gradient.shape[2:]):
        output[box] += shares
    return folded(output, padding)


def _sums(values: Array, at: Applied) -> Array:
    whole = framed(values, sides(at.edge, at.dilation))
    shape = shrunk(at.edge, at.dilation, whole.shape[2:])
    total: Array = np.zeros((*values.shape[:2], *shape))
    for _, box in taps(at.edge, at.dilation, shape):
        total += whole[box]
    return total


def _counts(values: Array, at: Applied) -> Array | int:
    """Return how many voxels each mean is of."""
    if at.edge.count_padding:
        return int(np.prod(at.edge.size))
    return _sums(np.ones((1, 1, *values.shape[2:])), at)


def averaged_sizes(edge: Numbers, dilation: Triple) -> AllSizes:
    """Return the sizes along z, y, x: padding alone has no mean where it does not count."""
    return windows(edge, dilation, meeting=not edge.count_padding)


AVG_POOL = EdgeKind(
    name="avg_pool",
    summary="Average pooling with a true stride. In short: its size.",
    example="avg_pool: {size: 2, stride: 2}    # mean of a window; count_padding: false leaves padding out",
    keys=AvgPoolLayer,
    short=("size", (int, float, list, tuple)),
    forward=averaged,
    data_gradient=averaged_gradient,
    sizes=averaged_sizes,
    wrong=pool_wrong,
    read=lambda keys: {**pool_numbers(keys), "count_padding": keys.count_padding},
)
