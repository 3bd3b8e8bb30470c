"""The edge kind `conv`: convolution with padding, stride, dilation and groups, and its gradients, in float64."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np
from pydantic import Field

from znnpy.fields import Bool, Padding3, Size3, Strict
from znnpy.layers.edge_kind import Applied, EdgeKind, Filters
from znnpy.layers.keys import (
    HE,
    ChannelsKey,
    Groups,
    InitField,
    Learn,
    Repeat,
    TransferKeys,
    read_filters,
    written_filters,
)
from znnpy.layers.normalization import standardized, standardized_gradient
from znnpy.layers.types import BARE, Array, BorderName, Numbers
from znnpy.layers.windows import folded, framed, padding_within, shrunk, sides, taps


class ConvKeys(Strict):
    """A bank of filters between all channels of two nodes."""

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
    padding: Padding3 = Field(
        default=BARE,
        description="Voxels round the feature map, z y x or pairs before and after; `same` keeps the size.",
    )
    border: BorderName = Field(
        default="zeros", description="What is padded: zeros, replicate (nearest voxel) or reflect."
    )
    groups: Groups = 1
    repeat: Repeat = (1, 1, 1)
    weight_standardization: Bool = Field(
        default=False,
        description="Each output channel's filters are used with mean 0 and variance 1.",
    )
    init: InitField = Field(default=HE, description="How the filters start.")
    learn: Learn = True


class ConvLayer(TransferKeys, ConvKeys, ChannelsKey):
    """A convolution, then bias and activation function."""


def convolve(values: Array, at: Applied) -> Array:
    """Return the cross-correlation of values (batch, channel, z, y, x) with the filters: no flip, as in PyTorch."""
    whole = framed(values, sides(at.edge, at.dilation), at.edge.border)
    shape = shrunk(at.edge, at.dilation, whole.shape[2:])
    filters = _used(at)
    output = np.zeros((values.shape[0], filters.shape[0], *shape))
    for tap, box in taps(at.edge, at.dilation, shape):
        output += mixed(filters[:, :, *tap], whole[box], at.edge.groups)
    return output


def convolve_data_gradient(values: Array, gradient: Array, at: Applied) -> Array:
    """Return the gradient by the input of `convolve`, of which only the shape is used."""
    padding, filters = sides(at.edge, at.dilation), _used(at)
    whole = zip(values.shape[2:], padding, strict=True)
    output = np.zeros((*values.shape[:2], *(n + before + after for n, (before, after) in whole)))
    for tap, box in taps(at.edge, at.dilation, gradient.shape[2:]):
        output[box] += mixed_back(filters[:, :, *tap], gradient, at.edge.groups)
    return folded(output, padding, at.edge.border)


def convolve_weight_gradient(values: Array, gradient: Array, at: Applied) -> Array:
    """Return the gradient by the filters of `convolve`, (out, in / groups, z, y, x)."""
    whole = framed(values, sides(at.edge, at.dilation), at.edge.border)
    output = np.zeros(filters_shape(at.edge, values.shape[1], gradient.shape[1]))
    for tap, box in taps(at.edge, at.dilation, gradient.shape[2:]):
        output[:, :, *tap] = products(gradient, whole[box], at.edge.groups)
    if at.edge.weight_standardization:
        return standardized_gradient(at.filters, output)
    return output


def _used(at: Applied) -> Array:
    """Return the filters that values are multiplied with: the learned ones, standardised if the edge says so."""
    return standardized(at.filters) if at.edge.weight_standardization else at.filters


def filters_shape(edge: Numbers, inputs: int, outputs: int) -> tuple[int, ...]:
    """Return the shape of an edge's filters, (out, in / groups, z, y, x)."""
    return (outputs, inputs // edge.groups, *edge.size)


def mixed(matrix: Array, values: Array, groups: int) -> Array:
    """Return every voxel's channels multiplied by a matrix (out, in / groups), group by group."""
    pairs = zip(np.split(matrix, groups), np.split(values, groups, axis=1), strict=True)
    return np.concatenate([_mixed(*pair) for pair in pairs], axis=1)


def mixed_back(matrix: Array, values: Array, groups: int) -> Array:
    """Return every voxel's channels multiplied by the transpose of a matrix (out, in / groups), group by group."""
    pairs = zip(np.split(matrix, groups), np.split(values, groups, axis=1), strict=True)
    return np.concatenate([_mixed(part.T, channels) for part, channels in pairs], axis=1)


def products(a: Array, b: Array, groups: int) -> Array:
    """Return sums over batch and voxels of products of channels, (channels of a, channels of b / groups)."""
    over = (0, 2, 3, 4)
    pairs = zip(np.split(a, groups, axis=1), np.split(b, groups, axis=1), strict=True)
    return np.concatenate([np.tensordot(*pair, (over, over)) for pair in pairs])


def _mixed(matrix: Array, values: Array) -> Array:
    return np.moveaxis(np.tensordot(matrix, values, ((1,), (1,))), 0, 1)


def _wrong(edge: Numbers) -> Iterable[str]:
    yield from padding_within(edge)
    if edge.border != "zeros" and edge.padding == BARE:
        yield f"border {edge.border} needs padding: without it no filter sees beyond the feature map"


_NUMBERS = (
    *("size", "stride", "sparsity", "sparsens", "padding", "border", "groups", "repeat"),
    *("weight_standardization", "learn"),
)

CONV = EdgeKind(
    name="conv",
    summary="Convolution, bias and activation function.",
    keys=ConvKeys,
    layer=ConvLayer,
    forward=convolve,
    data_gradient=convolve_data_gradient,
    learns=Filters(shape=filters_shape, gradient=convolve_weight_gradient),
    wrong=_wrong,
    read=partial(read_filters, _NUMBERS),
    written=partial(written_filters, _NUMBERS),
)
