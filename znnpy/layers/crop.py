"""The edge kind `crop`: removes a margin on both sides of each axis, in float64."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from znnpy.fields import Offset3, Strict
from znnpy.layers.edge_kind import Applied, EdgeKind
from znnpy.layers.types import Array


class CropLayer(Strict):
    """Removes a margin on both sides; an offset of 0 passes the feature map on."""

    offset: Offset3 = Field(description="Voxels removed on both sides, z y x.")


def cropped(values: Array, at: Applied) -> Array:
    """Return what lies inside the margin, as a view."""
    z, y, x = (
        slice(cut, have - cut) for cut, have in zip(at.edge.offset, values.shape[2:], strict=True)
    )
    return values[:, :, z, y, x]


def cropped_gradient(values: Array, gradient: Array, at: Applied) -> Array:
    """Return the gradient with zeros in the margin."""
    whole = np.zeros_like(values)
    cropped(whole, at)[...] = gradient
    return whole


CROP = EdgeKind(
    name="crop",
    summary="Crop. In short: the offset.",
    example="crop: {offset: [0, 1, 1]}         # or short, crop: [0, 1, 1]",
    keys=CropLayer,
    short=("offset", (int, float, list, tuple)),
    forward=cropped,
    data_gradient=cropped_gradient,
)
