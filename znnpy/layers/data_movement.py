"""The edge kinds that only move voxels, `identity`, `crop`, `pad` and `dropout`, in float64."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from pydantic import Field

from znnpy.fields import Offset3, Padding3, Probability, Strict
from znnpy.layers.edge_kind import Applied, EdgeKind
from znnpy.layers.types import Array, BorderName, Numbers
from znnpy.layers.windows import folded, framed, sides


class IdentityLayer(Strict):
    """Passes a feature map on: a residual connection where its node adds edges."""


IDENTITY = EdgeKind(
    name="identity",
    summary="Passes feature maps on, as residual connections do.",
    example="identity: {}                      # in a graph: a residual connection into a sum",
    keys=IdentityLayer,
    forward=lambda values, at: values,
    data_gradient=lambda values, gradient, at: gradient,
)


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


class PadLayer(Strict):
    """Puts voxels around a feature map."""

    padding: Padding3 = Field(
        description="Voxels before and after, z y x: one, three, or pairs [[before, after], ...]."
    )
    border: BorderName = Field(
        default="zeros",
        description="What they are: zeros; replicate, the nearest voxel; reflect, values mirrored at the outermost.",
    )


def padded_gradient(values: Array, gradient: Array, at: Applied) -> Array:
    """Return the gradient of the voxels that are no padding, with that of their copies."""
    return folded(gradient, sides(at.edge, at.dilation), at.edge.border)


def _no_same(edge: Numbers) -> Iterable[str]:
    if edge.padding == "same":
        yield "padding same means nothing here; write how many voxels"


PAD = EdgeKind(
    name="pad",
    summary="Voxels around feature maps, zeros or copies. In short: how many.",
    example="pad: {padding: [[0, 0], [0, 1], [0, 1]]}  # before and after, z y x; or short, pad: 1",
    keys=PadLayer,
    short=("padding", (int, float, list, tuple)),
    forward=lambda values, at: framed(values, sides(at.edge, at.dilation), at.edge.border),
    data_gradient=padded_gradient,
    wrong=_no_same,
)


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
