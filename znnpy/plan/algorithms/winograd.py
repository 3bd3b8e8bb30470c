"""Winograd's minimal filtering for filters of 3^3 taps, between images that lie in blocks."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from znnpy.network.types import Triple
from znnpy.plan.algorithms.protocol import Traits, stride_refusal
from znnpy.plan.cost import LANES_COUNTED, ConvShape
from znnpy.plan.tiles import lattices
from znnpy.plan.types import Method, PartSeconds

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


METHOD = Method("winograd")
traits = Traits(
    forward_functions=("linear", "relu", "leaky_relu"),
    backward_functions=("linear", "relu", "leaky_relu"),
    crops=True,
)


def refusal(size: Triple, stride: Triple) -> str:
    """Other sizes and true strides are refused."""
    return stride_refusal(stride) or ("winograd takes filters of 3 x 3 x 3" if size != TAPS else "")


def told(shape: ConvShape) -> list[Method]:
    """The one method."""
    return [METHOD]


def candidates(shape: ConvShape) -> list[Method]:
    """The one method."""
    return [METHOD]


def patch_methods(shape: ConvShape, most_seconds: float) -> list[Method]:
    """The one method."""
    return [METHOD]


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


def costs(shape: ConvShape, tile: Triple | None) -> PartSeconds:
    """Estimated seconds on one core, by pass; when training with the filters that it transforms."""
    filters = 4.0 * POINTS * shape.inputs * shape.outputs / FILTER_RATE if shape.training else 0.0
    return {
        "forward": winograd_seconds(shape) + filters,
        "gradient": winograd_seconds(backward_shape(shape)) + filters,
        "weight": weight_seconds(shape),
    }


def patch_seconds(shape: ConvShape, tile: Triple | None) -> float:
    """A forward pass."""
    return winograd_seconds(shape)


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
