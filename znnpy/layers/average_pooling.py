"""The edge kind `avg_pool`: average pooling with a stride, in float64."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from znnpy.fields import Bool
from znnpy.layers.edge_kind import Applied, EdgeKind
from znnpy.layers.max_pooling import PoolLayer, pool_numbers, pool_wrong
from znnpy.layers.padding import folded, framed, sides
from znnpy.layers.taps import shrunk, taps
from znnpy.layers.types import Array


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


AVG_POOL = EdgeKind(
    name="avg_pool",
    summary="Average pooling with a true stride. In short: its size.",
    example="avg_pool: {size: 2, stride: 2}    # mean of a window; count_padding: false leaves padding out",
    keys=AvgPoolLayer,
    short=("size", (int, float, list, tuple)),
    forward=averaged,
    data_gradient=averaged_gradient,
    wrong=pool_wrong,
    read=lambda keys: {**pool_numbers(keys), "count_padding": keys.count_padding},
)
