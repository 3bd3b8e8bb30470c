"""The edge kind `avg_pool`: the mean of every window."""

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
        default=True, description="Padding counts as zeros; false: means are of the image alone."
    )


def averaged(image: Array, at: Applied) -> Array:
    """Mean of every window."""
    return _sums(image, at) / _counts(image, at)


def averaged_gradient(image: Array, gradient: Array, at: Applied) -> Array:
    """Gradient of `averaged` for its image, of which the shape alone counts."""
    padding = sides(at.edge, at.dilation)
    shares = gradient / _counts(image, at)
    output = np.zeros_like(framed(image, padding))
    for _, box in taps(at.edge, at.dilation, gradient.shape[2:]):
        output[box] += shares
    return folded(output, padding)


def _sums(image: Array, at: Applied) -> Array:
    whole = framed(image, sides(at.edge, at.dilation))
    shape = shrunk(at.edge, at.dilation, whole.shape[2:])
    total: Array = np.zeros((*image.shape[:2], *shape))
    for _, box in taps(at.edge, at.dilation, shape):
        total += whole[box]
    return total


def _counts(image: Array, at: Applied) -> Array | int:
    """Voxels that each mean is of."""
    if at.edge.count_padding:
        return int(np.prod(at.edge.size))
    return _sums(np.ones((1, 1, *image.shape[2:])), at)


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
