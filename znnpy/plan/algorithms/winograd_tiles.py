"""Tiles of Winograd's minimal filtering, F(4, 3) along each axis of three taps: their numbers, and what they cost."""

from __future__ import annotations

from math import prod

from znnpy.network.types import Triple
from znnpy.plan.algorithms.protocol import stride_refusal
from znnpy.plan.cost import LANES_COUNTED, MOST_PLANAR, ConvShape
from znnpy.plan.tiles import lattices
from znnpy.plan.types import PASSES, PassName

NEW = 4  # outputs of a tile along an axis of three taps: F(4, 3)
POINTS = {3: 6, 1: 1}  # of a tile along an axis, by the filter's taps: 4 + 3 - 1
# Points of a cube. Seconds of transforms are those of its tiles; by the axes that are transformed tiles take these
# shares: as many as points, but that lines, with few of them a voxel, wait for memory.
CUBE = 216
SHARES = {3: 1.0, 2: 1 / 6, 1: 1 / 18}


def refusal(size: Triple, stride: Triple) -> str:
    """Refuse sizes other than one and three taps an axis, and strides but those of two along all axes of three taps."""
    taken = max(size) > 1 and all(taps in POINTS for taps in size)
    return strided_refusal(size, stride) or (
        "" if taken else "winograd takes filters of three taps along some axes and one along others"
    )


STRIDES: dict[Triple, Triple] = {(3, 3, 3): (2, 2, 2), (1, 3, 3): (1, 2, 2)}
"""Of layers whose voxels have phases (`winograd_strided`), by the taps of their filters."""


def strided_refusal(size: Triple, stride: Triple) -> str:
    """Refuse strides, but for those of two along all axes of three taps."""
    return "" if STRIDES.get(size) == stride else stride_refusal(stride)


def between_planar(shape: ConvShape) -> tuple[PassName, ...]:
    """All passes of layers of so few channels that most lanes would be idle: lanes go over tiles along x."""
    few = max(shape.inputs, shape.outputs) <= MOST_PLANAR and shape.between and shape.groups == 1
    lies = shape.size[2] == 3 and lattice_steps(shape.size, shape.dilation) == (1, 1, 1)
    return PASSES if few and lies and not refusal(shape.size, shape.stride) else ()


def new_voxels(size: Triple) -> Triple:
    """Return the outputs of a tile along each axis, for filters of this size."""
    z, y, x = (NEW if taps > 1 else 1 for taps in size)
    return z, y, x


def points_of_tile(size: Triple) -> int:
    """Return the points of a tile for filters of this size: 216 of cubes, 36 of flat ones."""
    return prod(POINTS[taps] for taps in size)


def tile_layers(extent: int, dilation: int, new: int) -> int:
    """Return the number of tiles of `new` outputs along an axis, over all its interleaved lattices."""
    return sum(-(-points // new) for points in lattices(extent, dilation))


def lattice_steps(size: Triple, dilation: Triple) -> Triple:
    """Return the voxels from tap to tap; 1 along axes of one tap, whose voxels are a single lattice."""
    z, y, x = (apart if taps > 1 else 1 for taps, apart in zip(size, dilation, strict=True))
    return z, y, x


def tile_count(shape: ConvShape) -> int:
    """Return the number of tiles of one image of the batch."""
    return prod(tiles_by_axis(shape))


def tiles_by_axis(shape: ConvShape) -> Triple:
    z, y, x = map(tile_layers, shape.target, shape.dilation, new_voxels(shape.size))
    return z, y, x


def transform_share(shape: ConvShape) -> float:
    """Return the seconds of a tile's transforms by those of a cube's."""
    return SHARES[sum(taps > 1 for taps in shape.size)]


def blocks_of(shape: ConvShape) -> tuple[int, int]:
    """Return the blocks of inputs and of outputs."""
    return -(-shape.inputs // LANES_COUNTED), -(-shape.outputs // LANES_COUNTED)


def whole_lanes(channels: int) -> int:
    return -(-channels // LANES_COUNTED) * LANES_COUNTED


def planar_seconds(shape: ConvShape, rates: tuple[float, float, float]) -> float:
    """Return the seconds of a pass between planar channels on one core."""
    source, target, pair = rates
    tile = shape.inputs * source + shape.outputs * target + shape.inputs * shape.outputs * pair
    return shape.batch * tile_count(shape) * transform_share(shape) * tile


def points_bytes(shape: ConvShape) -> float:
    """Return the bytes of the filters transformed for a forward pass."""
    return 4.0 * points_of_tile(shape.size) * shape.inputs * whole_lanes(shape.outputs)
