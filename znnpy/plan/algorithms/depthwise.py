"""Depthwise convolution, each image by a filter of its own: takes such layers and no others."""

from __future__ import annotations

from znnpy.geometry import voxels
from znnpy.network.types import Triple
from znnpy.plan.algorithms.protocol import Traits
from znnpy.plan.cost import LANES_COUNTED, STREAM_RATE, ConvShape
from znnpy.plan.types import PASSES, Method, PartSeconds

RATE = 40e9  # flop/s, lanes included
METHOD = Method("depthwise")
traits = Traits(depthwise=True, crops=True)


def refusal(size: Triple, stride: Triple) -> str:
    """Of all layers but those that it is for, whatever their size and stride."""
    return "depthwise takes filters of one channel each"


def told(shape: ConvShape) -> list[Method]:
    """The one method."""
    return [METHOD]


def candidates(shape: ConvShape) -> list[Method]:
    """The one method."""
    return [METHOD]


def patch_methods(shape: ConvShape, most_seconds: float) -> list[Method]:
    """The one method."""
    return [METHOD]


def costs(shape: ConvShape, tile: Triple | None) -> PartSeconds:
    """Estimated seconds by part: passes take as long as each other."""
    return dict.fromkeys(PASSES, patch_seconds(shape, tile))


def patch_seconds(shape: ConvShape, tile: Triple | None) -> float:
    """A pass, bound by its operations or its images."""
    images = shape.batch * -(-shape.outputs // LANES_COUNTED) * LANES_COUNTED
    flops = 2.0 * images * voxels(shape.size) * voxels(shape.target)
    bytes_ = 4.0 * images * (voxels(shape.source) + voxels(shape.target))
    return max(flops / RATE, bytes_ / STREAM_RATE)
