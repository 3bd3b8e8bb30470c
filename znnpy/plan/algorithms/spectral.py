"""Plan of spectral convolution, FFTs of overlapping tiles: its methods are tile sizes, estimated in `plan.tiles`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from znnpy.geometry import voxels
from znnpy.network.types import Triple
from znnpy.plan.algorithms import direct, winograd_strided
from znnpy.plan.algorithms.protocol import Traits
from znnpy.plan.cost import (
    CLEAR_RATIO,
    FEW_IMAGES,
    LANES_COUNTED,
    MOST_BYTES,
    STREAM_RATE,
    ConvShape,
    padded,
)
from znnpy.plan.joint_choice import cheapest, needed
from znnpy.plan.tiles import best_tiles, over_tiles, spectral_bytes, spectral_costs
from znnpy.plan.types import PASSES, TILE_SIZES, Method, PartSeconds, PassName

# With two instead of five sizes in all, two of twelve layers lost more than a tenth
# (docs/design/convolution.md, "auto"); more sizes lengthen the first start.
MEASURED_TILES = 4  # sizes of tiles that `auto` measures
# Times the least estimate; estimates err by a quarter at most, so such tiles are never the fastest.
FAR_FROM_BEST = 2.5
TRIED_TILES = 8  # sizes among which `conv: spectral` and patches take the best by estimate

traits = Traits(
    tile_sizes=TILE_SIZES,
    shares_spectra=True,
    forward_functions=("linear", "relu"),
    reads_planar=True,
    reads_planar_gradients=True,
    transposes=True,
    overlaps=True,
    crops=True,
)
TURNED: Mapping[PassName, PassName] = {"forward": "gradient", "gradient": "forward"}
"""Passes of a transposed convolution by those of the convolution that goes the other way, and back."""


def refusal(size: Triple, stride: Triple) -> str:
    """Return "": strided filters are dense ones on phases of the feature map."""
    return ""


def dense(shape: ConvShape) -> ConvShape:
    """Return the dense layer that tiles compute for any layer, in the direction of its filters; `stride` stays.

    Phases count as more channels, each phase from a new vector on; those of few `planar` channels share a vector.
    """
    if shape.transposed:
        passes = tuple(which for which in PASSES if TURNED.get(which, which) in shape.passes)
        shape = replace(
            shape,
            inputs=shape.outputs,
            outputs=shape.inputs,
            source=shape.target,
            target=shape.source,
            passes=passes,
            transposed=False,
        )
    phases, channels = shape.phases, shape.inputs
    few = shape.planar and over_tiles(channels, phases.count)
    # Kernels read whole vectors of a phase: idle lanes meet filters of zeros.
    if phases.split and not few:
        channels = -(-channels // LANES_COUNTED) * LANES_COUNTED
    return replace(
        shape,
        inputs=phases.count * channels,
        size=phases.size,
        dilation=phases.dilation,
        planar=few,
    )


def between_planar(shape: ConvShape) -> tuple[PassName, ...]:
    """Weight gradients, whose sums lie with the filters."""
    return ("weight",)


def told(shape: ConvShape) -> list[Method]:
    """Return the best sizes of tiles; none if no tile holds the filters."""
    return [Method("spectral", tile) for tile in best_tiles(dense(shape), TRIED_TILES)]


def candidates(shape: ConvShape) -> list[Method]:
    """Return the best sizes that fit in memory, unless clearly slower than direct convolution or the best of them."""
    if _loses(shape):
        return []
    like = dense(shape)
    tiles = best_tiles(like, MEASURED_TILES, MOST_BYTES)
    if "gradient" in like.passes:
        # The data gradient is a full correlation over other extents: its best tiles may differ from those of other
        # passes.
        tiles += best_tiles(replace(like, passes=("gradient",)), 1, MOST_BYTES)
    # Last: `auto` must never lose to `conv: spectral` for want of its tile. Duplicates end in the
    # dict below.
    tiles += _taken_if_told(shape)
    # With strides direct convolution is seldom slower than its estimate, and tiles of phases are seldom faster.
    ratio = 1.0 if shape.phases.split else CLEAR_RATIO
    # Of all passes, as `costs` adds them up.
    most = sum(direct.costs(shape, None).values()) * ratio
    found = {tile: sum(costs(shape, tile).values()) for tile in tiles}
    # With many channels spectra of filters for large tiles take long to time, and far more memory than the chosen
    # plan.
    most = min(most, FAR_FROM_BEST * min(found.values(), default=0.0))
    return [Method("spectral", tile) for tile, seconds in found.items() if seconds <= most]


def _loses(shape: ConvShape) -> bool:
    """Return whether others beat every tile of a strided layer: its phases fill few lanes, or have Winograd's tiles."""
    # Measured: for 8 images or fewer direct convolution was always faster (docs/design/convolution.md, "Strides");
    # Winograd's filtering of phases takes 0.4 to 0.8 of the time of the best spectral tile (winograd.md, "Strides of
    # two").
    few = min(shape.inputs, shape.outputs) <= FEW_IMAGES
    return shape.phases.split and (few or (not shape.transposed and winograd_strided.takes(shape)))


def _taken_if_told(shape: ConvShape) -> list[Triple]:
    """Return the tiles that `conv: spectral` would take, if they fit."""
    found = {method: costs(shape, method.tile) for method in told(shape)}
    if not found:
        return []
    layer = cheapest(needed(found, shape))
    tiles = [layer.method(which).tile for which in shape.passes]
    return [tile for tile in tiles if tile and spectral_bytes(dense(shape), tile) <= MOST_BYTES]


def patch_methods(shape: ConvShape, most_seconds: float) -> list[Method]:
    """Return the best sizes that fit in memory."""
    if _loses(shape):
        return []
    tiles = best_tiles(dense(shape), TRIED_TILES, MOST_BYTES, most_seconds)
    return [Method("spectral", tile) for tile in tiles]


def costs(shape: ConvShape, tile: Triple | None) -> PartSeconds:
    """Return the estimated seconds by part: three passes, and what two of them share.

    Passes of a transposed convolution share filters alone.
    """
    assert tile, "a spectral method has a tile"
    found = spectral_costs(dense(shape), tile)
    return _turned(found) if shape.transposed else found


def _turned(found: PartSeconds) -> PartSeconds:
    """Return the costs of a transposed convolution from those of the convolution in the reverse direction."""
    images, gradients = found["images"], found["gradients"]
    return {
        "forward": found["gradient"] + gradients,
        "filters": found["filters"],
        "gradient": found["forward"] + images,
        "weight": found["weight"] + images + gradients,
    }


def patch_seconds(shape: ConvShape, tile: Triple | None) -> float:
    """Return the seconds of a forward pass with the transforms of its feature maps.

    Bias and activation function of a transposed convolution are a further pass over its output.
    """
    found = costs(shape, tile)
    values = padded(shape.outputs) * voxels(shape.target) if shape.transposed else 0
    return found.get("images", 0.0) + found["forward"] + 8 * shape.batch * values / STREAM_RATE
