"""Estimated cost of Winograd's minimal filtering for filters of 3^3 taps."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from znnpy.plan.cost import LANES_COUNTED, ConvShape
from znnpy.plan.tiles import lattices
from znnpy.plan.types import PartSeconds

TAPS = (3, 3, 3)
NEW = 4  # outputs of a tile along an axis
POINTS = 216  # of a tile
# Rates of one core, measured within layers of 12 to 32 images.
PRODUCT_RATE = 150e9  # flop/s
SOURCE_SECONDS = 0.6e-6  # transform of a tile's LANES_COUNTED source images
TARGET_SECONDS = 0.45e-6  # of its output images
# The same within weight gradients.
WEIGHT_RATE = 110e9
SOURCE_POINTS_SECONDS, GRADIENT_POINTS_SECONDS = 0.7e-6, 0.5e-6
FILTER_RATE = 20e9  # bytes/s of transformed filters, while they are made
FILTERS_RATE = 25e9  # bytes/s of transformed filters beyond the L2 cache
CACHED_BYTES = 1 << 20  # of transformed filters that stay in it
GROUP = 28  # tiles that share their reading
MOST_BLOCKS = 4  # of source and target whose tiles stay in the L2 cache; more take longer
LONGER = 1.7


def takes(shape: ConvShape) -> bool:
    """Whether a layer can run so, if images lie in blocks."""
    return shape.size == TAPS and max(shape.stride) == 1


def backward_shape(shape: ConvShape) -> ConvShape:
    """The same of the layer whose forward pass takes as long as this one's data gradient."""
    return replace(
        shape,
        inputs=shape.outputs,
        outputs=shape.inputs,
        source=shape.target,
        target=shape.source,
    )


def tile_layers(extent: int, dilation: int) -> int:
    """Tiles along an axis, of all its interleaved lattices."""
    return sum(-(-points // NEW) for points in lattices(extent, dilation))


def winograd_seconds(shape: ConvShape) -> float:
    """The forward pass on one core."""
    tiles = shape.batch * prod(map(tile_layers, shape.target, shape.dilation))
    rows, columns = (-(-count // LANES_COUNTED) for count in (shape.inputs, shape.outputs))
    pairs = shape.inputs * columns * LANES_COUNTED
    products = max(2.0 * POINTS * pairs / PRODUCT_RATE, _filters_seconds(pairs))
    longer = LONGER if rows + columns > MOST_BLOCKS else 1.0
    return tiles * longer * (rows * SOURCE_SECONDS + columns * TARGET_SECONDS + products)


def winograd_costs(shape: ConvShape) -> PartSeconds:
    """Estimated seconds on one core, by pass; when training with the filters that it transforms."""
    filters = 4.0 * POINTS * shape.inputs * shape.outputs / FILTER_RATE if shape.training else 0.0
    return {
        "forward": winograd_seconds(shape) + filters,
        "gradient": winograd_seconds(backward_shape(shape)) + filters,
        "weight": weight_seconds(shape),
    }


def weight_seconds(shape: ConvShape) -> float:
    """The weight gradient on one core."""
    tiles = shape.batch * prod(map(tile_layers, shape.target, shape.dilation))
    rows, columns = (-(-count // LANES_COUNTED) for count in (shape.inputs, shape.outputs))
    pairs = shape.inputs * columns * LANES_COUNTED
    products = 2.0 * POINTS * pairs / WEIGHT_RATE
    return tiles * (rows * SOURCE_POINTS_SECONDS + columns * GRADIENT_POINTS_SECONDS + products)


def _filters_seconds(pairs: int) -> float:
    bytes_ = 4.0 * POINTS * pairs
    return bytes_ / FILTERS_RATE / GROUP if bytes_ > CACHED_BYTES else 0.0
