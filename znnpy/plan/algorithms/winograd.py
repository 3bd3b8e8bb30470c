"""Plan of Winograd's minimal filtering, F(4, 3) along each axis of three taps: feature maps in channel blocks.

Filters have one or three taps along each axis: cubes, flat ones as 1 x 3 x 3, and lines. docs/design/winograd.md has
the measurements behind the rates.
"""

from __future__ import annotations

from dataclasses import replace

from znnpy_kernels.simd.lanes import REGISTERS
from znnpy_kernels.winograd.cubes import CUBE
from znnpy_kernels.winograd.few_tiles import FEW_TILES
from znnpy_kernels.winograd.flat import TAPS_OF_PLANES
from znnpy_kernels.winograd.lines import TAPS_OF_LINES

from znnpy.network.types import ONCE, Triple
from znnpy.plan.algorithms.protocol import Traits
from znnpy.plan.algorithms.winograd_gradients import gradient_costs
from znnpy.plan.algorithms.winograd_shallow import flat_of, is_shallow, shallow_products
from znnpy.plan.algorithms.winograd_strided import (
    is_strided,
    strided_back_seconds,
    strided_seconds,
    takes,
)
from znnpy.plan.algorithms.winograd_tiles import (
    POINTS,
    lattice_steps,
    new_voxels,
    points_of_tile,
    tile_count,
)
from znnpy.plan.algorithms.winograd_tiles import between_planar as between_planar
from znnpy.plan.algorithms.winograd_tiles import blocks_of as _blocks
from znnpy.plan.algorithms.winograd_tiles import planar_seconds as _planar_seconds
from znnpy.plan.algorithms.winograd_tiles import points_bytes as points_bytes
from znnpy.plan.algorithms.winograd_tiles import refusal as refusal
from znnpy.plan.algorithms.winograd_tiles import tiles_by_axis as _tiles
from znnpy.plan.algorithms.winograd_tiles import transform_share as _share
from znnpy.plan.cost import LANES_COUNTED, ConvShape
from znnpy.plan.tiles import lattices
from znnpy.plan.types import MARCHES, PASSES, Method, PartSeconds

# Rates of one core, measured within layers of 12 to 32 channels.
# Only ratios matter: they choose between slabs and stages, cut passes into tasks, and compare with
# other algorithms.
PRODUCT_RATE = 150e9  # flop/s
SOURCE_SECONDS = 0.6e-6  # transform of a tile's LANES_COUNTED source channels
TARGET_SECONDS = 0.45e-6  # of its output channels
FILTER_RATE = 14e9  # bytes/s of transformed filters, while they are made
FILTERS_RATE = 20e9  # bytes/s of transformed filters beyond the L2 cache
CACHED_BYTES = 1 << 20  # of transformed filters that stay in it
GROUP = 28  # tiles that share their reading
# The same beyond an L3 cache.
FAR_RATE, FAR_BYTES = 10e9, 1 << 23
# Seconds of a tile between planar channels: transforms of an input, of an output, products of a pair.
PLANAR_SECONDS = 30e-9, 26e-9, 1.4e-9
# Tiles of a group, about, and of one that reads the filters from beyond an L3 cache: data between its stages leave
# the L2 cache in any case, so a larger group reads filters less often.
GROUP_TILES, FAR_GROUP_TILES = 64, 128
# Seconds of a tile's LANES_COUNTED channels, before and behind products.
PLANES_SECONDS, IMAGES_SECONDS = 1.2e-6, 1.0e-6
STAGED_RATE = 100e9  # flop/s of products, with the transforms along y
STREAMED_RATE = 33e9  # bytes/s of transformed filters that a group reads once, as they lie
# The same where filters are transformed on the way, and seconds of a point of a pair of channels for that.
PANELS_RATE, POINT_SECONDS = 82e9, 0.09e-9
FEWER_LANES_RATE, FEWER_LANES_SECONDS = 68e9, 0.24e-9  # these two of vectors of fewer lanes
FLAT_POINT_SECONDS = 0.07e-9  # of filters of one tap along z, whose points take fewer operations
SINGLE_SECONDS = 0.055e-9  # the same of few tiles, which are added to sums at once
# Of a task's sums, which stay in an L2 cache; channels that it has at least, if a part of its planes will do.
SUMS_BYTES, WIDE_PANEL = 1 << 19, 64
# LONGER: times the transforms of so many blocks, whose tiles come from beyond the L2 cache.
MOST_BLOCKS = 4  # of source and target whose tiles stay in the L2 cache; more take longer
LONGER = 1.7


# Some of what is imported is part of the algorithm's protocol (`as` the same name).
METHOD = Method("winograd")
MARCH_KNOWN = REGISTERS == 16
"""Whether marches that can make both gradients are known to be faster: with AVX2. Elsewhere `conv: auto` measures."""
traits = Traits(
    forward_functions=("linear", "relu", "leaky_relu"),
    backward_functions=("linear", "relu", "leaky_relu"),
    crops=True,
    sees_zeros=True,
    bands=True,
    adds=True,
    marches=True,
)


def told(shape: ConvShape) -> list[Method]:
    """Return the one method; none for dilated filters with a stride."""
    return [METHOD] if takes(shape) or not is_strided(shape) else []


def candidates(shape: ConvShape, march_known: bool = MARCH_KNOWN) -> list[Method]:
    """Return the one method, or one for each march where the layer has both and which is faster is not known."""
    if is_strided(shape) or march_known or not _marches_differ(shape):
        return told(shape)
    return [Method("winograd", march=it) for it in MARCHES]


def _marches_differ(shape: ConvShape) -> bool:
    """Return whether any pass of a layer may take other kernels by one march than by the other."""
    if between_planar(shape):
        return {"gradient", "weight"} <= set(shape.passes)
    part = shape.band if shape.bands else shape
    if is_shallow(part) or (is_staged(part) and is_staged(backward_shape(part))):
        return False
    if part.size == TAPS_OF_LINES:
        return not any(map(any, part.padding[1:]))
    return part.size == TAPS_OF_PLANES or (part.size == CUBE and part.dilation == ONCE)


def patch_methods(shape: ConvShape, most_seconds: float) -> list[Method]:
    """Return the one method; none for dilated filters with a stride."""
    return told(shape)


def backward_shape(shape: ConvShape) -> ConvShape:
    """Return the layer whose forward pass takes as long as this one's data gradient."""
    return replace(
        shape,
        inputs=shape.outputs,
        outputs=shape.inputs,
        source=shape.target,
        target=shape.source,
    )


def is_staged(shape: ConvShape) -> bool:
    """Return whether a forward pass goes in three stages, where slabs would read filters too often; by sizes alone."""
    # Stages only pay by reading filters less often; filters that a cache holds need no such help.
    slabs = _slabs_seconds(shape) + _changed_seconds(shape) * makes_filters(shape)
    return points_bytes(shape) > CACHED_BYTES and _staged_seconds(shape) < slabs


def group_tiles(shape: ConvShape) -> tuple[int, int]:
    """Return the extent of a group: layers of tiles along z, and tiles of a lattice along y, which share rows.

    All lattices along z, and all tiles along x, are in the same group.
    """
    # Layers of the longest lattice: the others have as many or one fewer.
    steps = lattice_steps(shape.size, shape.dilation)
    layers = [
        -(-n // (new * apart))
        for n, new, apart in zip(shape.target, new_voxels(shape.size), steps, strict=True)
    ]
    # Tiles that are always in one group: all along x, of all lattices along z.
    together = _tiles(shape)[2] * steps[0]
    most = FAR_GROUP_TILES if points_bytes(shape) > FAR_BYTES else GROUP_TILES
    rows = _even(layers[1], most // together)
    # A group is several layers deep only if it has all rows: otherwise its tiles would share no
    # planes.
    deep = most // (together * rows) if rows == layers[1] else 1
    return _even(layers[0], deep), rows


def _even(count: int, most: int) -> int:
    """Return the size of equal parts of at most `most`."""
    return -(-count // -(-count // max(1, most)))


def stage_seconds(shape: ConvShape, tiles: float, *, made: bool) -> tuple[float, float, float]:
    """Return the seconds of planes, products and outputs of a group of so many tiles, on one core.

    `made`: whether its filters are transformed on the way.
    """
    rows, columns = _blocks(shape)
    share = _share(shape)
    products = (_way_seconds if made else _column_seconds)(shape, tiles)
    return (
        rows * tiles * PLANES_SECONDS * share,
        products,
        columns * tiles * IMAGES_SECONDS * share,
    )


def makes_filters(shape: ConvShape, lanes: int = LANES_COUNTED) -> bool:
    """Return whether stages transform filters on the way: for so few tiles that this is less than to read them.

    Plans do not depend on the vectors' `lanes`; which way a pass takes may, as both give the same values.
    """
    tiles = tile_count(shape)
    # Each image reads all filters, and images share those that are made.
    read = shape.batch * _column_seconds(shape, tiles) + _changed_seconds(shape)
    return _way_seconds(shape, shape.batch * tiles, lanes) < read


def panel_parts(shape: ConvShape, tiles: int) -> tuple[int, int]:
    """Return into how many parts the planes of points of so many tiles are cut, and the outputs of a task, about.

    So that its sums stay in an L2 cache; the more outputs, the fewer tasks transform the same tiles along y.
    """
    planes, point = POINTS[shape.size[0]], 4 * points_of_tile(shape.size) * tiles
    wanted = min(WIDE_PANEL, shape.outputs)
    parts = (
        count for count in (1, 2, 3) if count <= planes and SUMS_BYTES * count >= point * wanted
    )
    found = next(parts, planes)
    return found, max(wanted, SUMS_BYTES * found // point)


def _reading_seconds(shape: ConvShape) -> float:
    """Return the seconds to read all transformed filters once."""
    bytes_ = points_bytes(shape)
    rate = FAR_RATE if bytes_ > FAR_BYTES else FILTERS_RATE
    return bytes_ / rate if bytes_ > CACHED_BYTES else 0.0


def winograd_seconds(shape: ConvShape) -> float:
    """Return the seconds of the forward pass on one core without stages, by which it is cut into tasks."""
    if between_planar(shape):
        return _planar_seconds(shape, PLANAR_SECONDS)
    tiles = shape.batch * tile_count(shape)
    rows, columns = _blocks(shape)
    pairs = shape.inputs * columns * LANES_COUNTED
    points = points_of_tile(shape.size)
    products = max(2.0 * points * pairs / PRODUCT_RATE, _filters_seconds(points * pairs))
    longer = LONGER if rows + columns > MOST_BLOCKS else 1.0
    transforms = _share(shape) * (rows * SOURCE_SECONDS + columns * TARGET_SECONDS)
    return tiles * longer * (transforms + products)


def costs(shape: ConvShape, tile: Triple | None) -> PartSeconds:
    """Return the estimated seconds on one core by pass; in training with the transforms of filters."""
    if is_strided(shape):
        backward = backward_shape(shape)
        return {
            "forward": strided_seconds(shape) + _changed_seconds(shape),
            "gradient": strided_back_seconds(backward) + _changed_seconds(backward),
            "weight": gradient_costs(shape),
        }
    backward = backward_shape(shape)
    return {
        "forward": _forward_seconds(shape) + _making_seconds(shape),
        "gradient": _forward_seconds(backward) + _making_seconds(backward),
        "weight": gradient_costs(shape),
    }


def filter_bytes(shape: ConvShape) -> float:
    """Return the bytes of transformed filters that a forward pass makes beforehand; 0 if it makes them on the way."""
    changing = replace(shape, passes=PASSES)
    if is_strided(shape):
        return points_bytes(shape)
    if is_shallow(shape):
        return 0.0
    return 0.0 if is_staged(changing) and makes_filters(changing) else points_bytes(shape)


def patch_seconds(shape: ConvShape, tile: Triple | None) -> float:
    """Return the seconds of a forward pass."""
    return strided_seconds(shape) if is_strided(shape) else _forward_seconds(shape)


def _forward_seconds(shape: ConvShape) -> float:
    """Return the seconds of the forward pass on one core."""
    if is_shallow(shape):
        tiles, (rows, columns) = shape.batch * shape.target[0], _blocks(shape)
        planes = tiles * _share(flat_of(shape)) * (rows * PLANES_SECONDS + columns * IMAGES_SECONDS)
        return planes + shallow_products(shape, shape.batch)
    return _staged_seconds(shape) if is_staged(shape) else _slabs_seconds(shape)


def _slabs_seconds(shape: ConvShape) -> float:
    """Return the seconds by slabs of tiles, each row of which along x reads all filters.

    Transforms alone take longer beyond caches.
    """
    if between_planar(shape):
        return _planar_seconds(shape, PLANAR_SECONDS)
    z, y, x = _tiles(shape)
    apart = lattice_steps(shape.size, shape.dilation)[0]
    rows, columns = _blocks(shape)
    transforms = _share(shape) * (rows * SOURCE_SECONDS + columns * TARGET_SECONDS)
    pairs = shape.inputs * columns * LANES_COUNTED
    products = 2.0 * points_of_tile(shape.size) * pairs / PRODUCT_RATE
    longer = LONGER if rows + columns > MOST_BLOCKS else 1.0
    steps = -(-z // apart) * y * -(-x * apart // (2 * GROUP))
    read = steps * _reading_seconds(shape)
    return shape.batch * (z * y * x * longer * transforms + max(z * y * x * products, read))


def _staged_seconds(shape: ConvShape) -> float:
    """Return the seconds in three stages, each group of which reads all filters."""
    deep, rows = group_tiles(shape)
    new = new_voxels(shape.size)
    apart_z, apart_y, _ = lattice_steps(shape.size, shape.dilation)
    slabs = -(-shape.target[0] // (new[0] * apart_z * deep))
    lines = [-(-points // (new[1] * rows)) for points in lattices(shape.target[1], apart_y)]
    groups = shape.batch * slabs * sum(lines)
    tiles = shape.batch * tile_count(shape)
    made = makes_filters(shape)
    planes, products, outputs = stage_seconds(shape, tiles / groups, made=made)
    # Images share filters that are made.
    return groups * (planes + outputs) + (_way_seconds(shape, tiles) if made else groups * products)


def _column_seconds(shape: ConvShape, tiles: float) -> float:
    """Return the seconds of a group's products with filters that are read."""
    bytes_ = points_bytes(shape)
    return bytes_ / 4 * 2.0 * tiles / STAGED_RATE + bytes_ / STREAMED_RATE


def _way_seconds(shape: ConvShape, tiles: float, lanes: int = LANES_COUNTED) -> float:
    """Return the seconds of a group's products with filters that are transformed on the way."""
    rate, made = PANELS_RATE, POINT_SECONDS if shape.size[0] > 1 else FLAT_POINT_SECONDS
    if lanes < LANES_COUNTED:
        rate, made = FEWER_LANES_RATE, FEWER_LANES_SECONDS
    made = SINGLE_SECONDS if tiles <= FEW_TILES else made
    return points_bytes(shape) / 4 * (2.0 * tiles / rate + made)


def _making_seconds(shape: ConvShape) -> float:
    """Return the seconds to transform filters for a pass that reads them."""
    made = is_shallow(shape) or (is_staged(shape) and makes_filters(shape))
    return 0.0 if made else _changed_seconds(shape)


def _changed_seconds(shape: ConvShape) -> float:
    """Return the seconds to transform all filters beforehand; in training, where they change, else 0."""
    return points_bytes(shape) / FILTER_RATE * shape.training


def _filters_seconds(floats: int) -> float:
    bytes_ = 4.0 * floats
    return bytes_ / FILTERS_RATE / GROUP if bytes_ > CACHED_BYTES else 0.0
