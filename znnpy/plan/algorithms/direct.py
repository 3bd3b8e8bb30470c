"""Plan of direct convolution: takes every layer; its cost is bound by operations or by memory."""

from __future__ import annotations

from znnpy_kernels.winograd import rows

from znnpy.geometry import voxels
from znnpy.layers.types import ONCE
from znnpy.network.types import Triple
from znnpy.plan.algorithms.protocol import Traits
from znnpy.plan.cost import FEW_IMAGES, LANES_COUNTED, STREAM_RATE, ConvShape, padded
from znnpy.plan.types import PASSES, Method, PartSeconds, PassName

# For all passes of training alike; only its ratio to the rates of other algorithms decides
# anything.
DIRECT_RATE = 80e9  # flop/s
IMAGES_RATE = 12e9  # bytes/s of feature maps that a pass with few operations reads and writes
# Of forward passes of large patches, which are timed apart from training passes.
# With few inputs there are few products for each output that is stored.
PATCH_RATE, FEW_INPUTS_RATE = 170e9, 85e9  # flop/s, idle lanes included
# Of the time of all products, where voxels along x are made by F(4, 5) (docs/design/winograd.md).
ROWS_SHARE = 0.55

METHOD = Method("direct")
# Everything that any layer needs: direct convolution is the fallback for what others refuse.
traits = Traits(
    forward_functions=("linear", "relu", "leaky_relu"),
    backward_functions=("linear", "relu", "leaky_relu"),
    reads_planar=True,
    reads_planar_gradients=True,
    writes_planar=True,
    spreads_planar=True,
    transposes=True,
    reads_halos=True,
    crops=True,
    bands=True,
    adds=True,
)


def refusal(size: Triple, stride: Triple) -> str:
    """Return "": direct convolution takes every layer."""
    return ""


def between_planar(shape: ConvShape) -> tuple[PassName, ...]:
    """None: lanes go over channels of one end."""
    return ()


def told(shape: ConvShape) -> list[Method]:
    """Return the one method."""
    return [METHOD]


def candidates(shape: ConvShape) -> list[Method]:
    """Return the one method, always."""
    return [METHOD]


def patch_methods(shape: ConvShape, most_seconds: float) -> list[Method]:
    """Return the one method, always."""
    return [METHOD]


def costs(shape: ConvShape, tile: Triple | None) -> PartSeconds:
    """Return the estimated seconds by part: all passes take equally long, but for forward passes by rows."""
    return {**dict.fromkeys(PASSES, _seconds(shape, 1.0)), "forward": direct_seconds(shape)}


def patch_seconds(shape: ConvShape, tile: Triple | None) -> float:
    """Return the seconds of a forward pass, bound by its operations or by memory."""
    rate = PATCH_RATE if shape.inputs >= FEW_IMAGES else FEW_INPUTS_RATE
    values = padded(shape.inputs) * voxels(shape.source)
    values += padded(shape.outputs) * voxels(shape.target)
    flops = direct_flops(shape) * _share(shape, "forward")
    return max(flops / rate, 4 * shape.batch * values / STREAM_RATE)


def direct_flops(shape: ConvShape, which: PassName = "forward") -> float:
    """Return the operations of one pass of direct convolution over the whole batch, idle lanes included.

    Lanes hold the channels that the pass writes; few of them on one side and many on the other are not padded.
    """
    lanes, other = shape.outputs, shape.inputs
    if which == "gradient":
        lanes, other = other, lanes
    # Few channels beside many lie planar, and lanes go over the other side: none is idle then.
    if lanes > FEW_IMAGES or other <= FEW_IMAGES:
        lanes = -(-lanes // LANES_COUNTED) * LANES_COUNTED
    return 2.0 * shape.batch * lanes * other * voxels(shape.size) * voxels(shape.places)


def direct_seconds(shape: ConvShape, which: PassName = "forward") -> float:
    """Return the seconds of one pass of direct convolution on one core, bound by operations or by memory."""
    return _seconds(shape, _share(shape, which), which)


def few_back_seconds(shape: ConvShape) -> float:
    """Return the seconds of a data gradient by few planar images, as its tasks take them: for its cuts."""
    # Along x taps meet zeros around the gradient, too; and products are too few for stores to hide behind them.
    beside = max(1.0, shape.source[2] / shape.places[2])
    return beside * direct_flops(shape, "gradient") / DIRECT_RATE + _images_seconds(shape)


def _seconds(shape: ConvShape, share: float, which: PassName = "forward") -> float:
    return max(share * direct_flops(shape, which) / DIRECT_RATE, _images_seconds(shape))


def _images_seconds(shape: ConvShape) -> float:
    floats = shape.inputs * voxels(shape.source) + shape.outputs * voxels(shape.target)
    return 4.0 * shape.batch * floats / IMAGES_RATE


def _share(shape: ConvShape, which: PassName) -> float:
    """Return which part of the time of all products a pass takes: less where it makes voxels along x by rows.

    By sizes alone, as the engine: flat filters with five taps along x, of few inputs that lie planar, dense.
    """
    dense = shape.stride == shape.dilation == ONCE and not shape.transposed
    few = dense and shape.planar and shape.groups == 1 and which == "forward"
    return ROWS_SHARE if few and rows.takes(shape.inputs, shape.size, shape.target[2]) else 1.0
