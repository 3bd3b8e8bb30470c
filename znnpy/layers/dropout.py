"""The edge kind `dropout`: voxels set to zero at random while training."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from znnpy.fields import Probability, Strict
from znnpy.layers.edge_kind import Applied, EdgeKind
from znnpy.layers.types import Array


class DropoutLayer(Strict):
    """Sets voxels to zero at random while training."""

    keep: Probability = Field(description="Probability with which a voxel is kept, in (0, 1].")


def dropped(values: Array, at: Applied) -> Array:
    """Forward and backward: kept voxels divided by `keep`; no mask (inference): all.

    NaN and Inf stay visible under the mask.
    """
    return values if at.mask is None else values * np.where(at.mask != 0, 1.0 / at.edge.keep, 0.0)


DROPOUT = EdgeKind(
    name="dropout",
    summary="Dropout. In short: the probability to keep.",
    example="dropout: {keep: 0.5}              # or short, dropout: 0.5",
    keys=DropoutLayer,
    short=("keep", (int, float)),
    forward=dropped,
    data_gradient=lambda image, gradient, at: dropped(gradient, at),
)
