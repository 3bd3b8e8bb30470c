"""The edge kind `upsample`: nearest or linear upsampling by whole factors, in float64."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from znnpy.fields import Size3, Strict
from znnpy.layers.edge_kind import Applied, EdgeKind
from znnpy.layers.sizes import AllSizes, Spreads
from znnpy.layers.types import Array, Numbers, Triple


class UpsampleLayer(Strict):
    """Feature maps grow by whole factors."""

    factor: Size3 = Field(
        description="Factor by which feature maps grow, z y x; one number is for all."
    )
    mode: Literal["nearest", "linear", "corners"] = Field(
        default="nearest",
        description="nearest voxel; linear between voxel centres; corners: linear, and the outermost voxels stay "
        "(align_corners).",
    )


def upsampled(values: Array, at: Applied) -> Array:
    """Return every voxel `factor` times along each axis, or linear interpolation between voxel centres."""
    for axis, factor in enumerate(at.edge.factor, start=2):
        if factor > 1:
            values = _along(axis, _weights(values.shape[axis], factor, at.edge), values)
    return values


def upsampled_gradient(values: Array, gradient: Array, at: Applied) -> Array:
    """Return the gradient by the input of `upsampled`, of which only the shape is used."""
    for axis, factor in enumerate(at.edge.factor, start=2):
        if factor > 1:
            gradient = _along(axis, _weights(values.shape[axis], factor, at.edge).T, gradient)
    return gradient


def _weights(size: int, factor: int, edge: Numbers) -> Array:
    """Return how much each new voxel takes of each old one along an axis, a matrix (new, old)."""
    if edge.mode == "nearest":
        return np.repeat(np.eye(size), factor, axis=0)
    if edge.mode == "corners":
        place = np.arange(size * factor) * (size - 1) / (size * factor - 1)
    else:
        place = np.clip((np.arange(size * factor) + 0.5) / factor - 0.5, 0, size - 1)
    weights: Array = np.maximum(0.0, 1.0 - np.abs(place[:, None] - np.arange(size)))
    return weights


def _along(axis: int, matrix: Array, values: Array) -> Array:
    return np.moveaxis(np.tensordot(matrix, values, ((1,), (axis,))), 0, axis)


def _sizes(edge: Numbers, dilation: Triple) -> AllSizes:
    """Return the sizes along z, y, x; with linear interpolation a voxel reaches all within one voxel's distance."""
    linear = edge.mode == "linear"
    if edge.mode == "corners":  # the further from the first voxel, the nearer to the one before
        z, y, x = (Spreads(3 * f, f, f, f) if f > 1 else Spreads() for f in edge.factor)
        return z, y, x
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
