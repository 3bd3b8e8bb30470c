"""The edge kind `upsample`: images grow by whole factors."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from znnpy.fields import Size3, Strict
from znnpy.layers.edge_kind import Applied, EdgeKind
from znnpy.layers.operation import Numbers
from znnpy.layers.sizes import AllSizes, Spreads
from znnpy.layers.types import Array, Interpolation, Triple


class UpsampleLayer(Strict):
    """Images grow by whole factors."""

    factor: Size3 = Field(
        description="Factor by which feature maps grow, z y x; one number is for all."
    )
    mode: Interpolation = Field(
        default="nearest",
        description="nearest voxel, or linear between voxel centres (align_corners=False).",
    )


def upsampled(image: Array, at: Applied) -> Array:
    """Every voxel `factor` times along each axis, or straight lines between the voxels' centres."""
    for axis, factor in enumerate(at.edge.factor, start=2):
        if factor > 1:
            image = _along(axis, _weights(image.shape[axis], factor, at.edge.mode), image)
    return image


def upsampled_gradient(image: Array, gradient: Array, at: Applied) -> Array:
    """Gradient of `upsampled` for its image, of which the shape alone counts."""
    for axis, factor in enumerate(at.edge.factor, start=2):
        if factor > 1:
            gradient = _along(axis, _weights(image.shape[axis], factor, at.edge.mode).T, gradient)
    return gradient


def _weights(size: int, factor: int, mode: Interpolation) -> Array:
    """What each new voxel takes of each old one along an axis: a matrix (new, old)."""
    if mode == "nearest":
        return np.repeat(np.eye(size), factor, axis=0)
    place = np.clip((np.arange(size * factor) + 0.5) / factor - 0.5, 0, size - 1)
    weights: Array = np.maximum(0.0, 1.0 - np.abs(place[:, None] - np.arange(size)))
    return weights


def _along(axis: int, matrix: Array, image: Array) -> Array:
    return np.moveaxis(np.tensordot(matrix, image, ((1,), (axis,))), 0, axis)


def _sizes(edge: Numbers, dilation: Triple) -> AllSizes:
    """Linear: a voxel goes to all that are nearer to it than the next one, also beyond the outermost."""
    linear = edge.mode == "linear"
    z, y, x = (
        Spreads(2 * f - f % 2, f, f // 2, f - f % 2 - f // 2) if linear else Spreads(f, f)
        for f in edge.factor
    )
    return z, y, x


UPSAMPLE = EdgeKind(
    name="upsample",
    summary="Feature maps grow by a factor. In short: the factor.",
    example="upsample: {factor: [1, 2, 2], mode: linear}  # or short, upsample: 2",
    keys=UpsampleLayer,
    short=("factor", (int, float, list, tuple)),
    forward=upsampled,
    data_gradient=upsampled_gradient,
    sizes=_sizes,
)
