"""Plan of shallow images by Winograd's minimal filtering: few planes of one tile each, between many channels.

Filters of 3 x 3 x 3 are then transformed along y and x alone, in passes and in weight gradients; along z taps meet
planes where these are, and nothing of padding (docs/design/winograd.md, *Shallow images*).
"""

from __future__ import annotations

from dataclasses import replace

from znnpy_kernels.winograd.shallow import CUBE, FLAT, MOST_PLANES

from znnpy.network.types import ONCE, Edge
from znnpy.plan.algorithms.winograd_tiles import NEW, points_of_tile, whole_lanes
from znnpy.plan.cost import LANES_COUNTED, ConvShape

# Pairs of channels from which on tasks share no filters of a march: their points, as of cubes, would leave an L2 cache.
LEAST_PAIRS = 1 << 11
# Rates of one core, on the scale of `winograd`: products, points of filters, and of their gradients.
PRODUCT_RATE = 100e9
POINT_SECONDS, GRADIENT_SECONDS = 0.03e-9, 0.06e-9


def is_shallow(shape: ConvShape) -> bool:
    """Return whether a pass sees `MOST_PLANES` planes or less, of a tile each, padded by a voxel along z; by sizes."""
    deep, *sides = shape.target
    return (
        shape.size == CUBE
        and shape.dilation == shape.stride == ONCE
        and shape.border == "zeros"
        and tuple(shape.padding[0]) == (1, 1)
        and deep == shape.source[0] <= MOST_PLANES
        and max(sides) <= NEW
        and not shape.transposed
        and shape.inputs * shape.outputs >= LEAST_PAIRS
        and min(shape.inputs, shape.outputs) >= LANES_COUNTED
    )


def flat_of(shape: ConvShape) -> ConvShape:
    """Return the layer whose tiles are those of a shallow one: its planes, one by one."""
    return replace(shape, size=FLAT, padding=((0, 0), *shape.padding[1:]))


def flat_edge(edge: Edge, padding: tuple[tuple[int, int], ...]) -> Edge:
    """Return the edge of such a layer, for an edge of that padding."""
    _, along_y, along_x = padding
    return replace(edge, size=FLAT, padding=((0, 0), along_y, along_x))


def shallow_products(shape: ConvShape, images: int) -> float:
    """Return the seconds of the products of so many images, with the transforms of filters, on one core."""
    return _pairs(shape) * (_products(shape) * images + TAPPED * POINT_SECONDS)


def shallow_sums(shape: ConvShape) -> float:
    """Return the seconds of the sums of a weight gradient, with their transforms to taps, on one core."""
    return _pairs(shape) * (_products(shape) * shape.batch + TAPPED * GRADIENT_SECONDS)


def shallow_flops(shape: ConvShape) -> float:
    """Return the operations of the products of all images."""
    return 2.0 * shape.batch * shape.inputs * shape.outputs * _met(shape) * points_of_tile(FLAT)


TAPPED = points_of_tile(FLAT) * CUBE[0]
"""Points of a filter."""


def _met(shape: ConvShape) -> int:
    """Return how often taps along z meet a plane."""
    return 3 * shape.target[0] - 2


def _products(shape: ConvShape) -> float:
    return 2.0 * points_of_tile(FLAT) * _met(shape) / PRODUCT_RATE


def _pairs(shape: ConvShape) -> int:
    return shape.inputs * whole_lanes(shape.outputs)
