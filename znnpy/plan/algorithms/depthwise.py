"""Plan of depthwise convolution, each channel by a filter of its own: takes such layers and no others."""

from __future__ import annotations

from znnpy.geometry import voxels
from znnpy.network.types import Triple
from znnpy.plan.algorithms.protocol import Traits
from znnpy.plan.cost import LANES_COUNTED, STREAM_RATE, ConvShape
from znnpy.plan.types import PASSES, Method, PartSeconds, PassName

# Below direct convolution's rate: no voxel that is loaded serves the filters of more than one
# channel.
RATE = 40e9  # flop/s, idle lanes included
METHOD = Method("depthwise")
traits = Traits(depthwise=True, crops=True)


def refusal(size: Triple, stride: Triple) -> str:
    """Refuse all layers but depthwise ones, whatever their size and stride."""
    return "depthwise takes filters of one channel each"


def between_planar(shape: ConvShape) -> tuple[PassName, ...]:
    """None: it reads blocks of channels."""
    return ()


def told(shape: ConvShape) -> list[Method]:
    """Return the one method."""
    return [METHOD]


def candidates(shape: ConvShape) -> list[Method]:
    """Return the one method."""
    return [METHOD]


def patch_methods(shape: ConvShape, most_seconds: float) -> list[Method]:
    """Return the one method."""
    return [METHOD]


def costs(shape: ConvShape, tile: Triple | None) -> PartSeconds:
    """Return the estimated seconds by part: all passes take equally long."""
    return dict.fromkeys(PASSES, patch_seconds(shape, tile))


def patch_seconds(shape: ConvShape, tile: Triple | None) -> float:
    """Return the seconds of a pass, bound by its operations or by the memory that it reads and writes."""
    channels = shape.batch * -(-shape.outputs // LANES_COUNTED) * LANES_COUNTED
    flops = 2.0 * channels * voxels(shape.size) * voxels(shape.target)
    bytes_ = 4.0 * channels * (voxels(shape.source) + voxels(shape.target))
    return max(flops / RATE, bytes_ / STREAM_RATE)
