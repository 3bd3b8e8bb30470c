"""Tiles of spectral convolution: which sizes suit a layer, how tiles are grouped, what passes cost.

An axis with k taps and tiles of n points gives n - k + 1 new points a tile. A dilated convolution is an ordinary one
on each of the interleaved lattices of its source, so tiles are counted over all lattices. docs/design/spectral.md
has the measurements.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import inf, log2, prod

from znnpy_kernels.fft.codelets import FEW

from znnpy.geometry import voxels
from znnpy.network.types import Triple
from znnpy.plan.cost import LANES_COUNTED, ConvShape
from znnpy.plan.types import TILE_SIZES, PartSeconds, wanted

# Rates of one core of a recent server CPU, measured within layers, where most spectra come from
# beyond its L2 cache. Transforms are counted as 2.5 n log2 n a tile.
# Fitted to 310 layers and tiles, task by task (docs/design/spectral.md, "Choice"); only ratios
# decide anything.
TILE_RATE = 48e9
# Points along an axis: planes of larger tiles leave the L1 cache between rows and columns.
IN_L1, NEAR_L1 = 20, 24
# Lines of a prime number of points take a multiply-add for each pair of sums: what they cost in place of log2, by
# operations a point beside those of 16 and, of 7 and 17, by updates with tiles of theirs.
PRIME_LINES = {7: 4.2, 11: 5.2, 17: 6.0}
FILTER_RATE, FEW_TAPS_RATE = 70e9, 130e9  # of filters: most of their points are zeros
PRODUCT_RATE = 240e9  # as if four times multiplied
SPECTRA_RATE = 35e9  # bytes/s of the spectra of tiles, between products
MEMORY_RATE = 12e9  # bytes/s of spectra of filters that no cache holds, as products read them
# Bytes/s of spectra as transforms write and read them, up to KEPT_BYTES and beyond.
NEAR_RATE, FAR_RATE = 22e9, 9e9
CACHED_BYTES = 1 << 23  # spectra of filters up to this stay in a usual L3 cache
# With fewer tiles products wait for filters; with more, spectra leave the cache
# (docs/design/spectral.md, "Memory and order").
FEW_TILES, MANY_TILES = 12, 16  # that at least share the reading of filters, cached or not
# Of the filters' spectra: a group's are at least as large, except with few channels.
GROUP_SHARE = 2 / 5
# Fixed: how many there are depends on the workers, of which a plan must not know.
GROUPS_COUNTED = 4  # groups of tiles under way at once, for estimates of memory
LANES_RATE = 25e9  # of few channels, with the gathering of their voxels
FEW_RATE = 20e9  # bytes/s of products with them
PHASED = 2.0  # times the transform of a tile: of voxels that lie apart
PACKING = 1.2  # times the transform of a tile: to gather its lanes from several
PLANES_SHARE = 0.7  # of a transform: lines along the first axis are left to the products
PACKING_SAVES = 1.3  # times the lanes, at least: packing pays only where it saves more
FEWEST_SMALL = 4  # tiles of a group, even where no L2 cache holds them
# Larger ones are made again: reading them back from memory takes about as long
# (docs/design/spectral.md).
KEPT_BYTES = 1 << 25  # spectra that one layer keeps from the forward pass for the weight gradient
# Higher than for tiles: 80 to 80 channels of 7^3 taps gain by it, though their spectra take 80 MB.
FILTERS_KEPT_BYTES = 1 << 27  # the same of filters, for the data gradient
# Spectra of a group of tiles, used while in a cache: larger groups read filters less often. With few channels
# nothing is gained by large groups.
GROUP_BYTES, SMALL_BYTES = 1 << 22, 1 << 19
# Bytes of a vector of packed tiles: larger ones are transformed half, and products go column by column; then bytes
# of a group of those.
NEAR_BYTES, COLUMNS_BYTES = 1 << 19, 1 << 24

# Large enough for all sizes of one search of patches, and bounded, as processes live long.
often_asked = lru_cache(maxsize=1 << 16)
"""Estimates of many patches ask for the same few numbers again and again."""


def lattices(extent: int, dilation: int) -> list[int]:
    """Return the number of points of each interleaved lattice of an axis; none is empty."""
    # Lattices beyond the extent have no point: an axis shorter than the dilation has as many
    # lattices as voxels.
    return [-(-(extent - first) // dilation) for first in range(min(dilation, extent))]


@often_asked
def new_points(taps: Triple, tile: Triple) -> Triple:
    """Return the points of the target along z, y, x that each tile covers."""
    z, y, x = (size - k + 1 for size, k in zip(tile, taps, strict=True))
    return z, y, x


def tile_count(extents: Triple, dilation: Triple, points: Triple) -> int:
    """Return the number of tiles of all lattices of one channel, each of `points` new points."""
    return prod(map(_axis_count, extents, dilation, points))


@often_asked
def _axis_count(extent: int, dilation: int, new: int) -> int:
    return sum(-(-size // new) for size in lattices(extent, dilation))


def tiles_of(shape: ConvShape, tile: Triple) -> int:
    """Return the number of tiles of the whole batch."""
    return shape.batch * tile_count(shape.target, shape.dilation, new_points(shape.size, tile))


def saves_lanes(channels: int, lanes: int = LANES_COUNTED) -> bool:
    """Return whether channels leave so many lanes of their last vector idle that they are packed."""
    return -(-channels // lanes) * lanes >= PACKING_SAVES * channels


def spectrum_bytes(tile: Triple, channels: int) -> int:
    """Return the bytes of the spectrum of a tile of all channels, packed where that saves lanes."""
    # Eight bytes: a complex number of two floats.
    return 8 * _lanes(channels) * frequencies(tile)


def _lanes(channels: int) -> int:
    """Return the lanes of a tile of so many channels."""
    return channels if saves_lanes(channels) else -(-channels // LANES_COUNTED) * LANES_COUNTED


@often_asked
def _transform_seconds(tile: Triple, channels: int, held: Triple | None = None) -> float:
    """Return the seconds to transform one tile of all channels, lanes idle or gathered from several tiles."""
    slower = PACKING if saves_lanes(channels) else 1.0
    return slower * _lanes(channels) / LANES_COUNTED * tile_seconds(tile, held=held)


def group_size(tile: Triple, tiles: int, channels: int) -> int:
    """Return the number of tiles whose spectra are made and used together, of so many channels.

    All groups have as many, the last one perhaps fewer. With fewer tiles filters are read, and their gradients read
    and written, more often; with more, memory grows. A layer is taken to have about as many outputs as inputs.
    """
    bytes_ = spectrum_bytes(tile, channels)
    channels = -(-channels // LANES_COUNTED) * LANES_COUNTED
    cached = bytes_ * channels <= CACHED_BYTES
    fewest = FEW_TILES if cached else max(MANY_TILES, int(GROUP_SHARE * channels))
    # Rounded up, then all groups are made equally large: a small last group would read the filters
    # for little.
    groups = -(-tiles // max(fewest, GROUP_BYTES // bytes_))
    return -(-tiles // groups)


def leaves_cache(tile: Triple) -> bool:
    """Return whether packed tiles are so large that products go column by column."""
    return spectra_bytes(tile) > NEAR_BYTES


def column_group(tile: Triple, tiles: int, channels: int) -> int:
    """Return the tiles of a group whose products go column by column, which needs no cache to hold them all."""
    groups = -(-tiles // max(FEWEST_SMALL, COLUMNS_BYTES // (8 * channels * frequencies(tile))))
    return -(-tiles // groups)


def small_group(tile: Triple, tiles: int, channels: int) -> int:
    """Return the tiles of a group whose products read few filters: as many as a cache holds."""
    groups = -(-tiles // max(FEWEST_SMALL, SMALL_BYTES // spectrum_bytes(tile, channels)))
    return -(-tiles // groups)


def kept_between_passes(tile: Triple, tiles: int, channels: int) -> bool:
    """Return whether spectra of that many tiles are kept for the weight gradient, not made again."""
    return tiles * spectrum_bytes(tile, channels) <= KEPT_BYTES


def frequencies(tile: Triple) -> int:
    """Return the number of complex values in the spectrum of a real tile."""
    return tile[0] * tile[1] * (tile[2] // 2 + 1)


def spectra_bytes(tile: Triple) -> int:
    """Return the bytes of the spectra of a tile of LANES_COUNTED channels."""
    return 8 * LANES_COUNTED * frequencies(tile)


@lru_cache(1 << 16)
def tile_seconds(tile: Triple, rate: float = TILE_RATE, held: Triple | None = None) -> float:
    """Return the seconds to transform one tile of LANES_COUNTED channels.

    Where only the first `held` points along z, y, x are not zero, or wanted, fewer lines along x and y are
    transformed.
    """
    # Lines along x are transformed for held planes and rows alone, those along y for held planes;
    # all lines along z are, as each has held points.
    z, y, _ = (few / size for few, size in zip(held or tile, tile, strict=True))
    lines = _line(tile[0]) + z * _line(tile[1]) + z * y * _line(tile[2])
    # Fitted with the rates (docs/design/spectral.md, "Choice").
    slower = 1.0 if max(tile) <= IN_L1 else 1.1 if max(tile) <= NEAR_L1 else 1.4
    # At least one line of log2: a tile of few points still has to be loaded and stored.
    return slower * 2.5 * voxels(tile) * max(1.0, lines) * LANES_COUNTED / rate


def _line(points: int) -> float:
    """Return what a line costs for each of its points."""
    return PRIME_LINES.get(points) or log2(points)


def spectral_costs(shape: ConvShape, tile: Triple) -> PartSeconds:
    """Return the estimated seconds on one core by part: three passes, and what two of them share.

    `shape` is `dense`, as for all functions here, and `planar` where lanes go over tiles.
    """
    columns = -(-shape.outputs // LANES_COUNTED)
    tiles = tiles_of(shape, tile)
    ahead = _transform_seconds(tile, shape.inputs) * (PHASED if shape.phases.split else 1.0)
    outputs = tiles * _transform_seconds(tile, shape.outputs, new_points(shape.size, tile))
    pairs = shape.inputs * columns
    filters = pairs * _filter_seconds(shape, tile) if shape.training else 0.0
    # Lanes over tiles: spectra are small and always kept, so images are transformed once.
    if shape.planar:
        images = -(-tiles // (LANES_COUNTED // shape.inputs)) * tile_seconds(tile, LANES_RATE)
        products = _few_products(tile, tiles, shape.outputs)
        shared = True
    else:
        images = tiles * ahead
        products = _products(tile, tiles, shape.inputs, shape.outputs)
        shared = not shape.training or kept_between_passes(tile, tiles, shape.inputs)
    # Spectra that are not kept cost each of the two passes a transform, and the part "images"
    # nothing.
    again = 0.0 if shared else images
    # Filters that are not kept for the data gradient are transformed for each of the two passes.
    twice = "gradient" in shape.passes and spectra_bytes(tile) * pairs > FILTERS_KEPT_BYTES
    return {
        "images": images - again,
        "forward": outputs + products + again,
        "filters": filters * (2 if twice else 1),
        "gradients": outputs,
        "gradient": tiles * ahead + _products(tile, tiles, shape.outputs, shape.inputs),
        "weight": filters + products + again,
    }


def over_tiles(channels: int, phases: int = 1, lanes: int = LANES_COUNTED) -> bool:
    """Return whether lanes go over tiles and phases of planar channels: so few that several fit into a vector."""
    # A vector takes whole tiles with all their phases. If it holds but one of them, lanes go over
    # channels as usual.
    return lanes // (phases * channels) * phases > 1


def _few_products(tile: Triple, tiles: int, channels: int) -> float:
    """Return the seconds of the products of a pass with so few channels, bound by the spectra of outputs."""
    return tiles * spectrum_bytes(tile, channels) / FEW_RATE


def _filter_seconds(shape: ConvShape, tile: Triple) -> float:
    """Return the seconds to transform the filters between one channel and LANES_COUNTED others."""
    rate = FEW_TAPS_RATE if max(shape.size[:2]) <= FEW else FILTER_RATE
    one = spectra_bytes(tile)
    bytes_ = one * shape.inputs * -(-shape.outputs // LANES_COUNTED)
    memory = (
        0.0 if bytes_ <= CACHED_BYTES else one / (NEAR_RATE if bytes_ <= KEPT_BYTES else FAR_RATE)
    )
    return tile_seconds(tile, rate) + memory


def _products(tile: Triple, tiles: int, terms: int, channels: int) -> float:
    """Return the seconds of the products of a pass; each group of tiles reads the spectra of all filters."""
    filters = frequencies(tile) * terms * -(-channels // LANES_COUNTED) * LANES_COUNTED
    spectra = frequencies(tile) * (terms + _lanes(channels))
    seconds = 8.0 * tiles * (filters / PRODUCT_RATE + spectra / SPECTRA_RATE)
    # Arithmetic and the reading of filters overlap: the longer of both counts.
    if 8 * filters > CACHED_BYTES:
        groups = -(-tiles // group_size(tile, tiles, terms))
        seconds = max(seconds, 8.0 * filters * groups / MEMORY_RATE)
    return seconds


def spectral_bytes(shape: ConvShape, tile: Triple) -> float:
    """Return the bytes of a layer's spectra: filters of one pass at a time, kept tiles, groups under way."""
    rows, columns = (-(-count // LANES_COUNTED) for count in (shape.inputs, shape.outputs))
    tiles = tiles_of(shape, tile)
    filters = shape.inputs * columns
    if "gradient" in shape.passes:
        filters += max(filters, shape.outputs * rows)
    kept = shape.training and kept_between_passes(tile, tiles, shape.inputs)
    under_way = GROUPS_COUNTED * (rows + columns) * group_size(tile, tiles, shape.inputs)
    return spectra_bytes(tile) * (filters + rows * tiles * kept + under_way)


def best_tiles(
    shape: ConvShape, count: int, most_bytes: float = inf, most_seconds: float = inf
) -> list[Triple]:
    """Return the `count` sizes with the least estimated sum of all passes; none if none fits.

    `most_seconds`: sizes whose forward pass takes as long are left out.
    """
    # Before sizes are combined, as a product over one axis may have tiles of one point.
    if voxels(shape.size) == 1:
        return []  # one tap: there is nothing to transform
    sizes = _axis_sizes(shape, 0), _axis_sizes(shape, 1), _axis_sizes(shape, 2)
    each = _least_product(shape)
    bounds = (_bounds(shape, tile, each) for tile in product(*sizes))
    # Those first that may cost least: of thousands few have to be looked at.
    fitting = sorted((least, tile) for forward, least, tile in bounds if forward < most_seconds)
    # One order of axes is enough: the others cost about the same.
    best: dict[tuple[int, ...], tuple[float, Triple]] = {}
    enough = inf
    for least, tile in fitting:
        if least > enough:
            break
        if spectral_bytes(shape, tile) > most_bytes:
            continue
        # Pairs break ties by the tile, so equal estimates give the same choice everywhere.
        own, order = (_wanted_seconds(shape, tile), tile), tuple(sorted(tile))
        if own < best.get(order, (inf, tile)):
            best[order] = own
            if len(best) >= count and own[0] < enough:
                # A little more: bounds are rounded, too.
                enough = 1.000001 * sorted(best.values())[count - 1][0]
    return [tile for _, tile in sorted(best.values())][:count]


def _bounds(shape: ConvShape, tile: Triple, each: float) -> tuple[float, float, Triple]:
    """Return lower bounds of any pass and of all of them, quickly found, and the tile.

    Transforms, of few channels those of the outputs; and products, `each` number of whose spectra takes so long.
    """
    tiles, forward = tiles_of(shape, tile), "forward" in shape.passes
    outputs = tiles * _transform_seconds(tile, shape.outputs, new_points(shape.size, tile))
    if shape.planar:
        return outputs, outputs, tile
    one = outputs + tiles * _transform_seconds(tile, shape.inputs)
    # What others share with the outputs of a forward pass counts once more.
    return one, one + outputs * forward + each * tiles * frequencies(tile), tile


def _least_product(shape: ConvShape) -> float:
    """Return a lower bound of the products of all passes for each number of a tile's spectrum."""
    inputs, outputs = shape.inputs, shape.outputs
    rows, columns = (-(-count // LANES_COUNTED) * LANES_COUNTED for count in (inputs, outputs))
    pairs = min(inputs * columns, outputs * rows)
    return 8.0 * len(shape.passes) * (pairs / PRODUCT_RATE + (inputs + outputs) / SPECTRA_RATE)


def _wanted_seconds(shape: ConvShape, tile: Triple) -> float:
    """Return the seconds of all passes that the layer needs."""
    return sum(
        cost for part, cost in spectral_costs(shape, tile).items() if wanted(part, shape.passes)
    )


def _axis_sizes(shape: ConvShape, axis: int) -> list[int]:
    """Return sizes of tiles for an axis, without those that take no fewer points in all than smaller ones but primes.

    An axis without a filter needs no transform.
    """
    taps, dilation = shape.size[axis], shape.dilation[axis]
    if taps == 1:
        return [1]
    found: list[int] = []
    fewest = inf
    for size in TILE_SIZES:
        if size < max(taps, 2):
            continue
        # Points over all tiles are what transforms cost; a larger tile must take fewer, or it has
        # no advantage along this axis.
        points = size * _axis_count(shape.target[axis], dilation, size - taps + 1)
        if points < fewest:
            found.append(size)
            # Next to a prime there are cheaper sizes: both may be the best.
            fewest = fewest if size in PRIME_LINES else points
    return found
