"""The edge kind `conv`: a bank of filters between all images of two nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from znnpy.fields import Size3, Strict
from znnpy.layers.keys import HE, ImagesKey, InitField, Repeat, TransferKeys, init_data, init_of
from znnpy.layers.kind import Applied, Array, EdgeKind, Filters
from znnpy.layers.taps import shrunk, taps

if TYPE_CHECKING:
    from znnpy.layers.edges import Numbers


class ConvKeys(Strict):
    """A bank of filters between all images of two nodes."""

    size: Size3 = Field(description="Filter size in voxels, z y x; one number is a cube.")
    stride: Size3 = Field(default=(1, 1, 1), description="True stride in voxels, z y x.")
    sparsity: Size3 = Field(
        default=(1, 1, 1),
        description="Dilation of the filter in voxels, z y x, on top of what is inherited.",
    )
    sparsens: Size3 = Field(
        default=(1, 1, 1),
        description="Factor by which what follows becomes sparser, z y x (stride in ZNN's files).",
    )
    repeat: Repeat = (1, 1, 1)
    init: InitField = Field(default=HE, description="How the filters start.")


class ConvLayer(TransferKeys, ConvKeys, ImagesKey):
    """A convolution, then bias and transfer function."""


def convolve(image: Array, at: Applied) -> Array:
    """Cross-correlation, valid: sum over taps of filter times shifted image."""
    shape = shrunk(at.edge, at.dilation, image.shape[2:])
    output = np.zeros((image.shape[0], at.filters.shape[0], *shape))
    for tap, box in taps(at.edge, at.dilation, shape):
        output += _mix(at.filters[:, :, *tap], image[box])
    return output


def convolve_data_gradient(image: Array, gradient: Array, at: Applied) -> Array:
    """Gradient of `convolve` for its image, of which the shape alone counts."""
    output = np.zeros((gradient.shape[0], at.filters.shape[1], *image.shape[2:]))
    for tap, box in taps(at.edge, at.dilation, gradient.shape[2:]):
        output[box] += _mix(at.filters[:, :, *tap].T, gradient)
    return output


def convolve_weight_gradient(image: Array, gradient: Array, at: Applied) -> Array:
    """Gradient of `convolve` for its filters, shape (out, in, z, y, x)."""
    output = np.zeros((gradient.shape[1], image.shape[1], *at.edge.size))
    over = (0, 2, 3, 4)
    for tap, box in taps(at.edge, at.dilation, gradient.shape[2:]):
        output[:, :, *tap] = np.tensordot(gradient, image[box], (over, over))
    return output


def _mix(matrix: Array, image: Array) -> Array:
    """One matrix over the images of every voxel."""
    return np.moveaxis(np.tensordot(matrix, image, ((1,), (1,))), 0, 1)


def _read(keys: Any) -> Mapping[str, Any]:
    names = ("size", "stride", "sparsity", "sparsens", "repeat")
    return {name: getattr(keys, name) for name in names} | {"init": init_of(keys.init)}


def _written(edge: Numbers) -> Mapping[str, Any]:
    names = ("size", "stride", "sparsity", "sparsens", "repeat")
    return {name: getattr(edge, name) for name in names} | {"init": init_data(edge.init)}


CONV = EdgeKind(
    name="conv",
    summary="Convolution, bias and transfer function.",
    keys=ConvKeys,
    layer=ConvLayer,
    forward=convolve,
    data_gradient=convolve_data_gradient,
    learns=Filters(
        shape=lambda edge, inputs, outputs: (outputs, inputs, *edge.size),
        gradient=convolve_weight_gradient,
    ),
    read=_read,
    written=_written,
)
