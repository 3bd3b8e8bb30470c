"""The edge kind `conv_transpose`: transposed convolution (the data gradient of a strided one), in float64."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np
from pydantic import Field

from znnpy.fields import Offset3, Padding3, Size3, Strict
from znnpy.layers.convolution import filters_shape, mixed, mixed_back, products
from znnpy.layers.edge_kind import Applied, EdgeKind, Filters
from znnpy.layers.keys import (
    HE,
    ChannelsKey,
    Groups,
    InitField,
    Learn,
    TransferKeys,
    read_filters,
    written_filters,
)
from znnpy.layers.sizes import spreads
from znnpy.layers.types import AXES, BARE, Array, Numbers
from znnpy.layers.windows import framed, padding_within, sides, taps


class ConvTransposeKeys(Strict):
    """A bank of filters by which every voxel is spread over several of a larger feature map."""

    size: Size3 = Field(description="Filter size in voxels, z y x; one number is a cube.")
    stride: Size3 = Field(
        default=(1, 1, 1), description="Voxels of the output for one of the input, z y x."
    )
    padding: Padding3 = Field(
        default=BARE,
        description="Voxels that the output loses before and after, z y x, as many as the convolution "
        "that goes the other way pads; `same` keeps the size.",
    )
    output_padding: Offset3 = Field(
        default=(0, 0, 0), description="Voxels that the output has more after the last, z y x."
    )
    groups: Groups = 1
    init: InitField = Field(default=HE, description="How the filters start.")
    learn: Learn = True


class ConvTransposeLayer(TransferKeys, ConvTransposeKeys, ChannelsKey):
    """A transposed convolution, then bias and activation function."""


def spread(values: Array, at: Applied) -> Array:
    """Return every voxel of values (batch, channel, z, y, x) times the filters, added where they overlap."""
    padding = sides(at.edge, at.dilation)
    along = zip(spreads(at.edge, at.dilation), values.shape[2:], strict=True)
    made = [sizes.made(n) for sizes, n in along]
    z, y, x = (slice(before, before + n) for n, (before, _) in zip(made, padding, strict=True))
    ends = (box.stop + after for box, (_, after) in zip((z, y, x), padding, strict=True))
    whole = np.zeros((values.shape[0], at.filters.shape[0], *ends))
    for tap, box in taps(at.edge, at.dilation, values.shape[2:]):
        whole[box] += mixed(at.filters[:, :, *tap], values, at.edge.groups)
    return whole[:, :, z, y, x]


def spread_data_gradient(values: Array, gradient: Array, at: Applied) -> Array:
    """Return the gradient by the input of `spread`: a convolution of the gradient."""
    whole, output = _widened(gradient, at), np.zeros(values.shape)
    for tap, box in taps(at.edge, at.dilation, values.shape[2:]):
        output += mixed_back(at.filters[:, :, *tap], whole[box], at.edge.groups)
    return output


def spread_weight_gradient(values: Array, gradient: Array, at: Applied) -> Array:
    """Return the gradient by the filters of `spread`, (out, in / groups, z, y, x)."""
    whole, groups = _widened(gradient, at), at.edge.groups
    output = np.zeros(filters_shape(at.edge, values.shape[1], gradient.shape[1]))
    for tap, box in taps(at.edge, at.dilation, values.shape[2:]):
        output[:, :, *tap] = products(whole[box], values, groups)
    return output


def _widened(gradient: Array, at: Applied) -> Array:
    """Return the gradient with zeros where the output was cut off."""
    return framed(gradient, sides(at.edge, at.dilation))


def _wrong(edge: Numbers) -> Iterable[str]:
    yield from padding_within(edge)
    for axis, more, stride in zip(AXES, edge.output_padding, edge.stride, strict=True):
        if more >= stride:
            yield f"output_padding {more} along {axis} must be less than the stride, {stride}"
            return  # one axis is enough to say: the others mostly have the same


_NUMBERS = ("size", "stride", "padding", "output_padding", "groups", "learn")

CONV_TRANSPOSE = EdgeKind(
    name="conv_transpose",
    summary="Transposed convolution, bias and activation function.",
    example="conv_transpose: {channels: 8, size: 2, stride: 2}  # grows; also padding: 0, output_padding: 0",
    keys=ConvTransposeKeys,
    layer=ConvTransposeLayer,
    forward=spread,
    data_gradient=spread_data_gradient,
    learns=Filters(shape=filters_shape, gradient=spread_weight_gradient),
    sizes=spreads,
    wrong=_wrong,
    read=partial(read_filters, _NUMBERS),
    written=partial(written_filters, _NUMBERS),
)
