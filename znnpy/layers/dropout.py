"""The edge kind `dropout`: sets voxels to zero at random while training, in float64."""

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
    """Return kept voxels divided by `keep`, zeros elsewhere; everything unchanged without a mask (inference).

    Serves values and gradients. NaN and Inf stay NaN under the mask, so that they are noticed.
    """
    return values if at.mask is None else values * np.where(at.mask != 0, 1.0 / at.edge.keep, 0.0)


DROPOUT = EdgeKind(
    name="dropout",
    summary="Dropout. In short: the probability to keep.",
    example="dropout: {keep: 0.5}              # or short, dropout: 0.5",
    keys=DropoutLayer,
    short=("keep", (int, float)),
    forward=dropped,
    data_gradient=lambda values, gradient, at: dropped(gradient, at),
)
