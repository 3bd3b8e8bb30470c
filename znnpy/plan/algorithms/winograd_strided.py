"""Plan of Winograd's minimal filtering of layers of three taps with strides of two: forward pass and data gradient."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from znnpy.network.types import ONCE
from znnpy.plan.algorithms.winograd_tiles import (
    NEW,
    blocks_of,
    points_bytes,
    strided_refusal,
    tile_count,
)
from znnpy.plan.cost import LANES_COUNTED, ConvShape

SEEN = 2 * NEW + 1
"""Voxels of a tile along a strided axis, for each of which there is a product; sums are `SUMS`."""
SUMS = NEW + 1
# Of a line's transform: 2 for each coefficient that is not 0.
VOXEL_FLOPS, SUM_FLOPS, BACK_FLOPS = 2 * 24, 2 * 14, 2 * 16
# Of one core, on the scale of large patches (`direct.PATCH_RATE`).
PRODUCT_RATE = 165e9  # flop/s
# Of LANES_COUNTED channels: of a voxel, by the axes that are transformed, and of a sum. Cubes leave the near caches.
VOXEL_SECONDS, SUM_SECONDS = {2: 1.7e-9, 3: 3.9e-9}, 2.1e-9
# The same of data gradients: of a point of the gradient, and of a sum.
POINT_SECONDS, MADE_SECONDS = 2.1e-9, {2: 2.1e-9, 3: 4.5e-9}
# Tiles that share their reading of the filters, by the same; bytes/s of filters that take more bytes than FAR_BYTES.
# Others are hidden behind products, which ask for them.
GROUP = {2: 24, 3: 12}
READING_RATE, FAR_BYTES = 24e9, 1 << 23


def is_strided(shape: ConvShape) -> bool:
    """Return whether a layer has a stride."""
    return max(shape.stride) > 1


def takes(shape: ConvShape) -> bool:
    """Return whether a strided layer has tiles; with dilation it has none."""
    return shape.dilation == ONCE and not strided_refusal(shape.size, shape.stride)


def strided_products(shape: ConvShape) -> float:
    """Return the operations of the products of all tiles."""
    seen = prod(SEEN if taps > 1 else 1 for taps in shape.size)
    return 2.0 * shape.batch * tile_count(shape) * seen * shape.inputs * shape.outputs


def strided_transforms(shape: ConvShape) -> float:
    """Return the operations of the transforms of voxels and of sums, of all tiles."""
    # Later axes have as many lines of voxels, and fewer of sums, as outputs replace these.
    axes = sum(taps > 1 for taps in shape.size)
    voxels = axes * SEEN ** (axes - 1) * VOXEL_FLOPS
    sums = sum(SUMS ** (axes - 1 - axis) * NEW**axis for axis in range(axes)) * SUM_FLOPS
    tiles = shape.batch * tile_count(shape)
    return float(tiles * (shape.inputs * voxels + shape.outputs * sums))


def samples_together(shape: ConvShape) -> int:
    """Return how many samples share their reading of the filters: those of one plane, which fill a group of tiles."""
    flat = shape.size[0] == shape.source[0] == shape.target[0] == 1
    return min(shape.batch, -(-GROUP[2] // tile_count(shape))) if flat else 1


def strided_back_transforms(shape: ConvShape) -> float:
    """Return the operations of the transforms of a data gradient, of gradients and of sums, of all tiles."""
    axes = sum(taps > 1 for taps in shape.size)
    gradients = axes * SUMS ** (axes - 1) * BACK_FLOPS
    # Two lines of sums for each of voxels.
    sums = sum(SEEN ** (axes - 1 - axis) * (2 * NEW) ** axis for axis in range(axes))
    tiles = shape.batch * tile_count(shape)
    return float(tiles * (shape.outputs * gradients + shape.inputs * sums * 2 * SUM_FLOPS))


def strided_seconds(shape: ConvShape) -> float:
    """Return the seconds of the forward pass on one core, without the transforms of filters."""
    axes = sum(taps > 1 for taps in shape.size)
    tiles, (rows, columns) = tile_count(shape), blocks_of(shape)
    products = columns * LANES_COUNTED / shape.outputs * strided_products(shape) / PRODUCT_RATE
    transforms = rows * float(SEEN**axes) * VOXEL_SECONDS[axes]
    transforms += columns * float(SUMS**axes) * SUM_SECONDS
    bytes_ = points_bytes(shape)
    together = samples_together(shape)
    groups = -(-shape.batch // together) * -(-together * tiles // GROUP[axes])
    read = groups * bytes_ / READING_RATE if bytes_ > FAR_BYTES else 0.0
    return products + shape.batch * tiles * transforms + read


def strided_back_seconds(shape: ConvShape) -> float:
    """Return the seconds of the data gradient on one core, of a shape with exchanged ends, without its filters."""
    axes = sum(taps > 1 for taps in shape.size)
    # Tiles have four gradients an axis, and are about as many.
    gradients = replace(shape, source=shape.target, target=shape.source)
    tiles, (rows, columns) = tile_count(gradients), blocks_of(shape)
    products = columns * LANES_COUNTED / shape.outputs * strided_products(gradients) / PRODUCT_RATE
    transforms = rows * float(SUMS**axes) * POINT_SECONDS
    transforms += columns * float(SEEN**axes) * MADE_SECONDS[axes]
    bytes_ = points_bytes(shape)
    read = -(-tiles // GROUP[axes]) * bytes_ if bytes_ > FAR_BYTES else 0.0
    return products + shape.batch * (tiles * transforms + read / READING_RATE)
