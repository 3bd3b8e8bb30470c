"""Tasks of weight gradients of first layers from the voxels that won the maxima behind them alone."""

from __future__ import annotations

from math import prod

from znnpy_kernels.direct.maxima_gradient import maxima_gradient
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.convolution.direct.correlation import blocks_of
from znnpy.engine.convolution.direct.slab_gradient import Slab
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.parameters import Piece
from znnpy.engine.memory.regions import Region
from znnpy.engine.memory.tensors import Planes, Tensor, firsts, source_range
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.engine.tasks.winning_taps import taps_met, taps_words
from znnpy.layers.windows import sides
from znnpy.network.types import Edge
from znnpy.plan.algorithms.direct import DIRECT_RATE

SHARE = 0.6
"""Of the rate of all products: each vector of voxels is loaded for one multiply-add, anywhere between lines."""


def seconds_of(edge: Edge, pairs: int, count: int) -> float:
    """Return the seconds of the sums of so many pairs of channels over so many maxima."""
    return 2.0 * LANES * pairs * edge.size[1] * count / (SHARE * DIRECT_RATE)


def slab_gradient(
    pooling: Edge,
    step: Step,
    build: Build,
    edge: Edge,
    factors: tuple[Tensor, Tensor],
    piece: Piece,
    slab: Slab,
    place: int,
    region: Region,
    beside: int,
) -> None:
    """Declare the task that adds what one slab of maxima brings to all filters of a group of outputs."""
    (source, layer), (samples, low, high) = factors, slab
    gradient = build.maps.gradients[pooling.target]
    vectors, block = piece.width // LANES, piece.first_output // LANES
    z0, z1, y0, y1 = gradient.box(low, high)
    source_z, gradient_z = source.z_stride, gradient.z_stride
    taps = taps_words(build, pooling, gradient, samples.start, block, Planes(0, gradient.extent))
    taps_z, plane = int(taps["index_z"]), gradient.shape[0] * int(taps["index_z"])
    if len(samples) > 1:
        z1, source_z, gradient_z = len(samples), source.batch_stride, gradient.batch_stride
        taps_z = gradient.blocks * plane
    before = firsts(sides(pooling, build.layout.geometry.dilations[pooling.name]))
    outputs = min(piece.width, gradient.channels - block * LANES)
    maxima = len(samples) * (high - low) * prod(gradient.shape) // gradient.extent
    seen = source_range(edge, (1, 1, 1), gradient.cut, *_windows(pooling, before, layer, low, high))
    step.add(
        maxima_gradient,
        {
            "source": source.at(samples.start, 0, z0),
            "source_block": source.block_stride,
            "source_z": source_z,
            "source_y": source.y_stride,
            "channels": piece.inputs,
            "taps_y": edge.size[1],
            "taps_x": edge.size[2],
            "voxels_y": layer.shape[1],
            "voxels_x": layer.shape[2],
            "gradient": gradient.at(samples.start, block, z0),
            "gradient_block": gradient.block_stride,
            "gradient_z": gradient_z,
            "gradient_y": gradient.y_stride,
            "index": taps["index"] + 2 * z0 * taps_z,
            "index_block": plane,
            "index_z": taps_z,
            "index_y": taps["index_y"],
            "window_y": pooling.size[1],
            "window_x": pooling.size[2],
            "stride_y": pooling.stride[1],
            "stride_x": pooling.stride[2],
            "before_y": before[1],
            "before_x": before[2],
            "planes": z1 - z0,
            "y0": y0,
            "y1": y1,
            "width": gradient.shape[2],
            "outputs": outputs,
            "target": place,
        },
        what=Identity(edge.name, Pass.WEIGHT, Part.DIRECT),
        cost=seconds_of(edge, outputs * piece.inputs, maxima),
        reads=[
            *(
                met
                for sample in samples
                for channel in range(piece.inputs)
                for met in source.met(sample, channel, *seen)
            ),
            *(
                met
                for sample in samples
                for met in blocks_of(gradient, sample, block, vectors, low, high)
            ),
            *(
                met
                for sample in samples
                for own in range(block, block + vectors)
                for met in taps_met(build, pooling, gradient, sample, own, Planes(low, high))
            ),
        ],
        writes=[region],
    )


def _windows(
    pooling: Edge, before: tuple[int, int, int], layer: Tensor, low: int, high: int
) -> tuple[int, int]:
    """Return the planes of a layer's output that windows low..high see, along its cut axis."""
    axis = layer.cut
    first = low * pooling.stride[axis] - before[axis]
    last = (high - 1) * pooling.stride[axis] - before[axis] + pooling.size[axis]
    return max(0, first), min(layer.extent, last)
