"""The edge kind `mean`: the mean over all voxels of a channel, at each of them, in float64."""

from __future__ import annotations

import numpy as np

from znnpy.fields import Strict
from znnpy.layers.edge_kind import Applied, EdgeKind
from znnpy.layers.types import Array


class MeanLayer(Strict):
    """Replaces each voxel by the mean of its channel over the whole patch, as squeeze and excitation reads it."""


def spread_mean(values: Array, at: Applied) -> Array:
    """Return the mean of each channel of each sample at all of its voxels."""
    return np.broadcast_to(values.mean(axis=(2, 3, 4), keepdims=True), values.shape).copy()


MEAN = EdgeKind(
    name="mean",
    summary="The mean of a channel over the whole patch, at each of its voxels.",
    example="mean: {}                          # in a graph: before squeeze and excitation",
    keys=MeanLayer,
    forward=spread_mean,
    of_patch=lambda numbers: "means of the patch",
    # The matrix of a mean, 1 / n everywhere, is its own transpose.
    data_gradient=lambda values, gradient, at: spread_mean(gradient, at),
)
