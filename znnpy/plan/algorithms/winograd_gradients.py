"""Plan of weight gradients by Winograd's minimal filtering: in two stages, or in one where channels are few.

docs/design/winograd.md, *Filter gradient*, has the measurements behind the rates.
"""

from __future__ import annotations

from math import prod

from znnpy.network.types import Triple
from znnpy.plan.algorithms.winograd_shallow import flat_of, is_shallow, shallow_sums
from znnpy.plan.algorithms.winograd_strided import (
    SEEN,
    SUM_SECONDS,
    SUMS,
    VOXEL_SECONDS,
    is_strided,
    strided_products,
)
from znnpy.plan.algorithms.winograd_tiles import (
    CUBE,
    between_planar,
    blocks_of,
    planar_seconds,
    points_of_tile,
    tile_count,
    tiles_by_axis,
    transform_share,
    whole_lanes,
)
from znnpy.plan.cost import LANES_COUNTED, ConvShape

# Rates of one core, as those of other passes: only ratios matter.
WEIGHT_RATE = 110e9  # flop/s of products
# Seconds of the points of a tile's LANES_COUNTED channels; tiles of fewer axes take less.
SOURCE_POINTS_SECONDS, GRADIENT_POINTS_SECONDS = 0.7e-6, 0.5e-6
# The same between planar channels as in `winograd`; sums over lanes are part of the pairs'.
PLANAR_WEIGHT_SECONDS = 32e-9, 28e-9, 3.4e-9
TAPS_SECONDS = 66e-9  # of a pair of channels: taps from the sums of its points
# Each range clears and transforms back sums of its own: it takes so long at least, and transforming back takes at
# most this share of it, where there are tasks enough.
RANGE_SECONDS, TAPS_SHARE = 2.5e-4, 0.1
# So many tasks are left even if transforming sums then takes more than its share.
FEWEST_TASKS = 16
# More ranges give more tasks and more memory; adding them up reads all of it once more.
PARTIAL_BYTES = 1 << 22  # of gradients of ranges side by side
FEWEST_RANGES = 16  # allowed however large a layer's filters are, so that many workers have work
# In two stages: products; points, which leave the caches and come back; taps from sums in an L1 cache, with the lines
# that they are written to.
JOINT_RATE = 125e9
JOINT_SOURCE_SECONDS, JOINT_GRADIENT_SECONDS = 1.3e-6, 0.95e-6
JOINT_TAPS_SECONDS = 50e-9
# Points of a range, as many as of 32 tiles of cubes: more leave the caches between the stages; fewer are more sums to
# transform back.
JOINT_POINTS = 32 * CUBE
# Of gradients that ranges are added up in, side by side: ranges take them in turn, and all are added
# in the end. More take more memory and caches; with fewer, many workers wait for each other's.
JOINT_BYTES, FEWEST_JOINT = 1 << 23, 16
# Of strided layers, by the axes with a stride: tiles of a range, whose points leave the caches sooner, and products.
STRIDED_TILES, STRIDED_RATE = {2: 96, 3: 24}, 165e9
# Pairs of channels of a task, of whose sums a quarter, 54 of cubes, stay in an L2 cache: 0.4 MB.
JOINT_PAIRS = 2048
# Blocks of source and target together, by the axes that are transformed, from which on tiles that are one plane go in
# two stages: products are many enough beside bytes from memory, which one stage asks for while they run.
THIN_BLOCKS = {2: 6, 1: 16}


def gradient_costs(shape: ConvShape) -> float:
    """Return the seconds of the weight gradient on one core."""
    if is_shallow(shape):
        return sum(joint_seconds(flat_of(shape))[:2]) + shallow_sums(shape)
    if is_joint(shape) and not between_planar(shape):
        return sum(joint_seconds(shape))
    return weight_seconds(shape) + _taps_seconds(shape)


def is_joint(shape: ConvShape) -> bool:
    """Return whether it goes in two stages, points of all tiles of a range, then their sums; by sizes alone.

    Where its channels lie in blocks: between planar ones there is another way.
    """
    axes = sum(taps > 1 for taps in shape.size)
    thick = shape.size[0] > 1 or is_strided(shape)
    return thick or sum(blocks_of(shape)) >= THIN_BLOCKS[axes]


def joint_panels(size: Triple, blocks: int, lanes: int = LANES_COUNTED) -> tuple[int, int]:
    """Return the parts into which a task of sums cuts its blocks of inputs, and the pairs of outputs that it takes."""
    pairs, most = blocks * 2 * lanes * lanes, JOINT_PAIRS * CUBE // points_of_tile(size)
    return -(-pairs // most), max(1, most // pairs)


def joint_ranges(shape: ConvShape, lines: int) -> tuple[int, int]:
    """Return the ranges of samples that are summed together, and the ranges of a sample's `lines` rows of tiles.

    By sizes alone. Only samples that are not cut are together.
    """
    tiles, most = tile_count(shape), JOINT_POINTS // points_of_tile(shape.size)
    if is_strided(shape):
        most = STRIDED_TILES[sum(taps > 1 for taps in shape.size)]
    if 2 * tiles <= most:
        return -(-shape.batch // (most // tiles)), 1
    return shape.batch, min(lines, -(-tiles // most))


def joint_leaves(shape: ConvShape, ranges: int) -> int:
    """Return in how many gradients so many ranges are added up; by sizes alone, as bits depend on it."""
    bytes_ = 4 * prod(shape.size) * shape.inputs * whole_lanes(shape.outputs)
    return min(ranges, max(FEWEST_JOINT, JOINT_BYTES // bytes_))


def joint_seconds(shape: ConvShape) -> tuple[float, float, float]:
    """Return the seconds of the points of source and of gradient, and of their sums, on one core."""
    tiles, (rows, columns) = shape.batch * tile_count(shape), blocks_of(shape)
    pairs = shape.inputs * columns * LANES_COUNTED
    points = points_of_tile(shape.size)
    z, y, _ = tiles_by_axis(shape)
    ranges = prod(joint_ranges(shape, z * y))
    share = points / CUBE
    if is_strided(shape):
        axes = sum(taps > 1 for taps in shape.size)
        sums = strided_products(shape) * columns * LANES_COUNTED / shape.outputs
        return (
            tiles * rows * float(SEEN**axes) * VOXEL_SECONDS[axes],
            tiles * columns * float(SUMS**axes) * SUM_SECONDS,
            sums / STRIDED_RATE + share * ranges * pairs * JOINT_TAPS_SECONDS,
        )
    return (
        share * tiles * rows * JOINT_SOURCE_SECONDS,
        share * tiles * columns * JOINT_GRADIENT_SECONDS,
        2.0 * points * pairs * tiles / JOINT_RATE + share * ranges * pairs * JOINT_TAPS_SECONDS,
    )


def range_count(shape: ConvShape, lines: int) -> int:
    """Return how many ranges of `lines` rows of tiles along x are summed apart for each sample; by sizes alone."""
    pairs = shape.inputs * whole_lanes(shape.outputs)
    seconds = weight_seconds(shape) / shape.batch
    # Few enough that transforming sums stays a small share, unless that left fewer than
    # FEWEST_TASKS tasks.
    cheap = max(
        TAPS_SHARE * seconds / (pairs * TAPS_SECONDS * transform_share(shape)),
        FEWEST_TASKS / shape.batch,
    )
    # Each sample has ranges of its own, so the batch shares the memory.
    most = most_ranges(shape) // shape.batch
    # Bits depend on the number of ranges: sizes and constants decide, never workers or measured
    # time.
    return max(1, min(lines, most, int(seconds / RANGE_SECONDS), int(cheap)))


def most_ranges(shape: ConvShape) -> int:
    """Return how many ranges may leave gradients side by side, of all samples."""
    pairs = shape.inputs * whole_lanes(shape.outputs)
    return max(FEWEST_RANGES, PARTIAL_BYTES // (4 * prod(shape.size) * pairs))


def weight_seconds(shape: ConvShape) -> float:
    """Return the seconds of the weight gradient in one stage, without transforms of sums: for its cuts."""
    if between_planar(shape):
        return planar_seconds(shape, PLANAR_WEIGHT_SECONDS)
    tiles = shape.batch * tile_count(shape)
    rows, columns = blocks_of(shape)
    pairs = shape.inputs * columns * LANES_COUNTED
    products = 2.0 * points_of_tile(shape.size) * pairs / WEIGHT_RATE
    transforms = rows * SOURCE_POINTS_SECONDS + columns * GRADIENT_POINTS_SECONDS
    return tiles * (transform_share(shape) * transforms + products)


def _taps_seconds(shape: ConvShape) -> float:
    """Return the seconds in which all ranges of a weight gradient in one stage transform their sums."""
    if between_planar(shape):
        return 0.0
    z, y, _ = tiles_by_axis(shape)
    sums = shape.batch * range_count(shape, z * y) * shape.inputs * whole_lanes(shape.outputs)
    return transform_share(shape) * sums * TAPS_SECONDS
