"""The edge kind `crop`: a margin is removed on both sides."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from znnpy.fields import Offset3, Strict
from znnpy.layers.edge_kind import Applied, EdgeKind
from znnpy.layers.types import Array


class CropLayer(Strict):
    """Removes a margin on both sides; an offset of 0 passes the images on."""

    offset: Offset3 = Field(description="Voxels removed on both sides, z y x.")


def cropped(image: Array, at: Applied) -> Array:
    """What lies inside the margin: a view."""
    z, y, x = (
        slice(cut, have - cut) for cut, have in zip(at.edge.offset, image.shape[2:], strict=True)
    )
    return image[:, :, z, y, x]


def cropped_gradient(image: Array, gradient: Array, at: Applied) -> Array:
    """The gradient inside, zeros around it."""
    whole = np.zeros_like(image)
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
