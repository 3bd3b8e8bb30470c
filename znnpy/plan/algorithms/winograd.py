"""Plan of Winograd's minimal filtering, F(4, 3) along each axis: filters of 3^3 taps, feature maps in channel blocks.

docs/design/winograd.md has the measurements behind the rates.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from znnpy.network.types import Triple
from znnpy.plan.algorithms.protocol import Traits, stride_refusal
from znnpy.plan.cost import LANES_COUNTED, ConvShape
from znnpy.plan.partition import cut_axis
from znnpy.plan.tiles import lattices
from znnpy.plan.types import Method, PartSeconds

# The one size that its kernels are written for.
TAPS = (3, 3, 3)
NEW = 4  # outputs of a tile along an axis: F(4, 3)
POINTS = 216  # of a tile: (4 + 3 - 1)^3
# Rates of one core, measured within layers of 12 to 32 channels.
# Only ratios matter: they choose between slabs and stages, cut passes into tasks, and compare with
# other algorithms.
PRODUCT_RATE = 150e9  # flop/s
SOURCE_SECONDS = 0.6e-6  # transform of a tile's LANES_COUNTED source channels
TARGET_SECONDS = 0.45e-6  # of its output channels
# The same within weight gradients.
WEIGHT_RATE = 110e9
SOURCE_POINTS_SECONDS, GRADIENT_POINTS_SECONDS = 0.7e-6, 0.5e-6
FILTER_RATE = 9e9  # bytes/s of transformed filters, while they are made
FILTERS_RATE = 20e9  # bytes/s of transformed filters beyond the L2 cache
CACHED_BYTES = 1 << 20  # of transformed filters that stay in it
GROUP = 28  # tiles that share their reading
# The same beyond an L3 cache.
FAR_RATE, FAR_BYTES = 10e9, 1 << 23
TAPS_SECONDS = 66e-9  # of a pair of channels: taps from the sums of its points
PANEL_PAIRS = 1536  # of channels whose sums, of 216 points each, stay in an L2 cache: 1.3 MB
# Each range clears and transforms back sums of its own: it takes so long at least, and transforming back takes at
# most this share of it, where there are tasks enough.
RANGE_SECONDS, TAPS_SHARE = 4e-4, 0.1
# So many tasks are left even if transforming sums then takes more than its share.
FEWEST_TASKS = 16
# More ranges give more tasks and more memory; adding them up reads all of it once more.
PARTIAL_BYTES = 1 << 22  # of gradients of ranges side by side
FEWEST_RANGES = 16  # allowed however large a layer's filters are, so that many workers have work
# Tiles of a group, about, and of one that reads the filters from beyond an L3 cache: data between its stages leave
# the L2 cache in any case, so a larger group reads filters less often.
GROUP_TILES, FAR_GROUP_TILES = 64, 128
# Seconds of a tile's LANES_COUNTED channels, before and behind products.
PLANES_SECONDS, IMAGES_SECONDS = 1.2e-6, 1.0e-6
STAGED_RATE = 100e9  # flop/s of products, with the transforms along y
# LONGER: times the transforms of so many blocks, whose tiles come from beyond the L2 cache.
MOST_BLOCKS = 4  # of source and target whose tiles stay in the L2 cache; more take longer
LONGER = 1.7


METHOD = Method("winograd")
traits = Traits(
    forward_functions=("linear", "relu", "leaky_relu"),
    backward_functions=("linear", "relu", "leaky_relu"),
    crops=True,
)


def refusal(size: Triple, stride: Triple) -> str:
    """Refuse sizes other than 3^3, and strides above 1."""
    return stride_refusal(stride) or ("winograd takes filters of 3 x 3 x 3" if size != TAPS else "")


def told(shape: ConvShape) -> list[Method]:
    """Return the one method."""
    return [METHOD]


def candidates(shape: ConvShape) -> list[Method]:
    """Return the one method."""
    return [METHOD]


def patch_methods(shape: ConvShape, most_seconds: float) -> list[Method]:
    """Return the one method."""
    return [METHOD]


def backward_shape(shape: ConvShape) -> ConvShape:
    """Return the layer whose forward pass takes as long as this one's data gradient."""
    return replace(
        shape,
        inputs=shape.outputs,
        outputs=shape.inputs,
        source=shape.target,
        target=shape.source,
    )


def tile_layers(extent: int, dilation: int) -> int:
    """Return the number of tiles along an axis, over all its interleaved lattices."""
    return sum(-(-points // NEW) for points in lattices(extent, dilation))


def is_staged(shape: ConvShape) -> bool:
    """Return whether a forward pass goes in three stages, where slabs would read filters too often; by sizes alone."""
    # Stages only pay by reading filters less often; filters that a cache holds need no such help.
    return _points_bytes(shape) > CACHED_BYTES and _staged_seconds(shape) < _slabs_seconds(shape)


def group_tiles(shape: ConvShape) -> tuple[int, int]:
    """Return the extent of a group: layers of tiles along z, and tiles of a lattice along y, which share rows.

    All lattices along z, and all tiles along x, are in the same group.
    """
    # Layers of the longest lattice: the others have as many or one fewer.
    layers = [-(-n // (NEW * apart)) for n, apart in zip(shape.target, shape.dilation, strict=True)]
    # Tiles that are always in one group: all along x, of all lattices along z.
    together = tile_layers(shape.target[2], shape.dilation[2]) * shape.dilation[0]
    most = FAR_GROUP_TILES if _points_bytes(shape) > FAR_BYTES else GROUP_TILES
    rows = _even(layers[1], most // together)
    # A group is several layers deep only if it has all rows: otherwise its tiles would share no
    # planes.
    deep = most // (together * rows) if rows == layers[1] else 1
    return _even(layers[0], deep), rows


def _even(count: int, most: int) -> int:
    """Return the size of equal parts of at most `most`."""
    return -(-count // -(-count // max(1, most)))


def stage_seconds(shape: ConvShape, tiles: float) -> tuple[float, float, float]:
    """Return the seconds of planes, columns and outputs of a group of so many tiles, on one core."""
    rows, columns = _blocks(shape)
    products = 2.0 * POINTS * shape.inputs * columns * LANES_COUNTED * tiles / STAGED_RATE
    return (
        rows * tiles * PLANES_SECONDS,
        max(products, _reading_seconds(shape)),
        columns * tiles * IMAGES_SECONDS,
    )


def _points_bytes(shape: ConvShape) -> float:
    """Return the bytes of the filters transformed for a forward pass."""
    return 4.0 * POINTS * shape.inputs * _lanes(shape.outputs)


def _reading_seconds(shape: ConvShape) -> float:
    """Return the seconds to read all transformed filters once."""
    bytes_ = _points_bytes(shape)
    rate = FAR_RATE if bytes_ > FAR_BYTES else FILTERS_RATE
    return bytes_ / rate if bytes_ > CACHED_BYTES else 0.0


def winograd_seconds(shape: ConvShape) -> float:
    """Return the seconds of the forward pass on one core without stages, by which it is cut into tasks."""
    tiles = shape.batch * prod(map(tile_layers, shape.target, shape.dilation))
    rows, columns = _blocks(shape)
    pairs = shape.inputs * columns * LANES_COUNTED
    products = max(2.0 * POINTS * pairs / PRODUCT_RATE, _filters_seconds(pairs))
    longer = LONGER if rows + columns > MOST_BLOCKS else 1.0
    return tiles * longer * (rows * SOURCE_SECONDS + columns * TARGET_SECONDS + products)


def costs(shape: ConvShape, tile: Triple | None) -> PartSeconds:
    """Return the estimated seconds on one core by pass; in training with the transforms of filters."""
    filters = 4.0 * POINTS * shape.inputs * shape.outputs / FILTER_RATE if shape.training else 0.0
    return {
        "forward": _forward_seconds(shape) + filters,
        "gradient": _forward_seconds(backward_shape(shape)) + filters,
        "weight": weight_seconds(shape) + _panel_seconds(shape),
    }


def patch_seconds(shape: ConvShape, tile: Triple | None) -> float:
    """Return the seconds of a forward pass."""
    return _forward_seconds(shape)


def panels(blocks: int, lanes: int = LANES_COUNTED) -> tuple[int, int]:
    """Return how many parts a task cuts its blocks of inputs into, and the pairs of blocks of outputs that it takes."""
    pairs = blocks * 2 * lanes * lanes
    return -(-pairs // PANEL_PAIRS), max(1, PANEL_PAIRS // pairs)


def range_count(shape: ConvShape, planes: int) -> int:
    """Return how many ranges of `planes` planes of tiles are summed apart for each sample; by sizes alone."""
    rows, columns = _blocks(shape)
    parts, together = panels(rows)
    tasks = shape.batch * parts * -(-columns // (2 * together))
    pairs = shape.inputs * columns * LANES_COUNTED
    seconds = weight_seconds(shape) / shape.batch
    # Few enough that transforming sums stays a small share, unless that left fewer than
    # FEWEST_TASKS tasks.
    cheap = max(TAPS_SHARE * seconds / (pairs * TAPS_SECONDS), FEWEST_TASKS / tasks)
    # Each sample has ranges of its own, so the batch shares the memory.
    most = max(FEWEST_RANGES, PARTIAL_BYTES // (4 * prod(TAPS) * pairs)) // shape.batch
    # Bits depend on the number of ranges: sizes and constants decide, never workers or measured
    # time.
    return max(1, min(planes, most, int(seconds / RANGE_SECONDS), int(cheap)))


def weight_seconds(shape: ConvShape) -> float:
    """Return the seconds of the weight gradient on one core, without repeated work of its parts: for its cuts."""
    tiles = shape.batch * prod(map(tile_layers, shape.target, shape.dilation))
    rows, columns = _blocks(shape)
    pairs = shape.inputs * columns * LANES_COUNTED
    products = 2.0 * POINTS * pairs / WEIGHT_RATE
    return tiles * (rows * SOURCE_POINTS_SECONDS + columns * GRADIENT_POINTS_SECONDS + products)


def _forward_seconds(shape: ConvShape) -> float:
    """Return the seconds of the forward pass on one core."""
    return _staged_seconds(shape) if is_staged(shape) else _slabs_seconds(shape)


def _slabs_seconds(shape: ConvShape) -> float:
    """Return the seconds by slabs of tiles, each row of which along x reads all filters.

    Transforms alone take longer beyond caches.
    """
    z, y, x = map(tile_layers, shape.target, shape.dilation)
    rows, columns = _blocks(shape)
    transforms = rows * SOURCE_SECONDS + columns * TARGET_SECONDS
    products = 2.0 * POINTS * shape.inputs * columns * LANES_COUNTED / PRODUCT_RATE
    longer = LONGER if rows + columns > MOST_BLOCKS else 1.0
    steps = -(-z // shape.dilation[0]) * y * -(-x * shape.dilation[0] // (2 * GROUP))
    read = steps * _reading_seconds(shape)
    return shape.batch * (z * y * x * longer * transforms + max(z * y * x * products, read))


def _staged_seconds(shape: ConvShape) -> float:
    """Return the seconds in three stages, each group of which reads all filters."""
    deep, rows = group_tiles(shape)
    slabs = -(-shape.target[0] // (NEW * shape.dilation[0] * deep))
    lines = [-(-points // (NEW * rows)) for points in lattices(shape.target[1], shape.dilation[1])]
    groups = shape.batch * slabs * sum(lines)
    tiles = shape.batch * prod(map(tile_layers, shape.target, shape.dilation))
    return groups * sum(stage_seconds(shape, tiles / groups))


def _panel_seconds(shape: ConvShape) -> float:
    """Return the seconds that panels and ranges of a weight gradient add: repeated transforms of tiles and sums."""
    tiles = shape.batch * prod(map(tile_layers, shape.target, shape.dilation))
    rows, columns = _blocks(shape)
    parts, together = panels(rows)
    again = rows * SOURCE_POINTS_SECONDS * (-(-columns // (2 * together)) - 1)
    again += columns * GRADIENT_POINTS_SECONDS * (parts - 1)
    axis = cut_axis(shape.target)
    planes = tile_layers(shape.target[axis], shape.dilation[axis])
    sums = shape.batch * range_count(shape, planes) * shape.inputs * _lanes(shape.outputs)
    return tiles * again + sums * TAPS_SECONDS


def _blocks(shape: ConvShape) -> tuple[int, int]:
    """Return the blocks of inputs and of outputs."""
    return -(-shape.inputs // LANES_COUNTED), -(-shape.outputs // LANES_COUNTED)


def _lanes(channels: int) -> int:
    return -(-channels // LANES_COUNTED) * LANES_COUNTED


def _filters_seconds(pairs: int) -> float:
    bytes_ = 4.0 * POINTS * pairs
    return bytes_ / FILTERS_RATE / GROUP if bytes_ > CACHED_BYTES else 0.0
