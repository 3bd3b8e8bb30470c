"""Spectral convolution of overlapping tiles: its methods are sizes of tiles, estimated in `plan.tiles`."""

from __future__ import annotations

from dataclasses import replace

from znnpy.network.types import Triple
from znnpy.plan.algorithms.direct import direct_seconds
from znnpy.plan.algorithms.protocol import Traits, stride_refusal
from znnpy.plan.combine import cheapest, needed
from znnpy.plan.cost import CLEAR_RATIO, MOST_BYTES, ConvShape
from znnpy.plan.tiles import best_tiles, spectral_bytes, spectral_costs
from znnpy.plan.types import PASSES, TILE_SIZES, Method, PartSeconds

MEASURED_TILES = 4  # sizes of tiles that `auto` measures
TRIED_TILES = 8  # sizes among which `conv: spectral` and patches take the best by estimate

traits = Traits(
    tile_sizes=TILE_SIZES,
    shares_spectra=True,
    forward_functions=("linear", "relu"),
    reads_planar=True,
    reads_planar_gradients=True,
    crops=True,
)


def refusal(size: Triple, stride: Triple) -> str:
    """True strides are refused."""
    return stride_refusal(stride)


def told(shape: ConvShape) -> list[Method]:
    """The best sizes of tiles; none if none holds the filters."""
    return [Method("spectral", tile) for tile in best_tiles(shape, TRIED_TILES)]


def candidates(shape: ConvShape) -> list[Method]:
    """The best sizes that fit in memory, unless clearly slower than direct convolution."""
    tiles = best_tiles(shape, MEASURED_TILES, MOST_BYTES)
    if "gradient" in shape.passes:
        # Full correlation covers other extents: what suits it need not suit the other passes.
        tiles += best_tiles(replace(shape, passes=("gradient",)), 1, MOST_BYTES)
    tiles += _taken_if_told(shape)
    most = len(PASSES) * direct_seconds(shape) * CLEAR_RATIO
    return [
        Method("spectral", tile)
        for tile in dict.fromkeys(tiles)
        if sum(spectral_costs(shape, tile).values()) <= most
    ]


def _taken_if_told(shape: ConvShape) -> list[Triple]:
    """Tiles that `conv: spectral` would take, as long as they fit."""
    found = {method: costs(shape, method.tile) for method in told(shape)}
    if not found:
        return []
    layer = cheapest(needed(found, shape))
    tiles = [layer.method(which).tile for which in shape.passes]
    return [tile for tile in tiles if tile and spectral_bytes(shape, tile) <= MOST_BYTES]


def patch_methods(shape: ConvShape, most_seconds: float) -> list[Method]:
    """The best sizes that fit in memory."""
    tiles = best_tiles(shape, TRIED_TILES, MOST_BYTES, most_seconds)
    return [Method("spectral", tile) for tile in tiles]


def costs(shape: ConvShape, tile: Triple | None) -> PartSeconds:
    """Estimated seconds by part: three passes, and what two of them share."""
    assert tile, "a spectral method has a tile"
    return spectral_costs(shape, tile)


def patch_seconds(shape: ConvShape, tile: Triple | None) -> float:
    """A forward pass with the transforms of its images."""
    found = costs(shape, tile)
    return found["images"] + found["forward"]
