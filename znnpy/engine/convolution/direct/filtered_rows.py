"""Tasks of weight gradients of few planar inputs and five taps along x by minimal filtering (`winograd.rows`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, groupby
from math import prod

from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd import rows
from znnpy_kernels.winograd.rows_gradient import KERNELS, LEAST_ROWS

from znnpy.engine.convolution.direct.correlation import blocks_of
from znnpy.engine.convolution.direct.slab_gradient import Slab
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.parameters import Piece
from znnpy.engine.memory.regions import Region
from znnpy.engine.memory.tensors import Tensor, source_range
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network.types import Edge
from znnpy.plan.algorithms.direct import DIRECT_RATE

SHARE = 0.5
"""Of the time of all products; two fifths are multiplied, the rest is transforms."""


def takes(build: Build, edge: Edge, source: Tensor, gradient: Tensor) -> bool:
    """Return whether sums over voxels along x are made by minimal filtering: by sizes alone, as in `correlation`."""
    dilation = build.layout.geometry.dilations[edge.name]
    if not source.lanes == 1 < gradient.lanes or {*edge.stride[1:], *dilation[1:]} != {1}:
        return False
    few = source.channels * edge.size[1] < LEAST_ROWS
    return not few and rows.takes(source.channels, edge.size, gradient.shape[2])


def by_outputs(pieces: Sequence[Piece]) -> list[range]:
    """Return the pieces of each group of outputs, which lie one behind the other: those that a task does."""
    counts = [len(list(own)) for _, own in groupby(pieces, lambda piece: piece.first_output)]
    stops = accumulate(counts)
    return [range(stop - count, stop) for stop, count in zip(stops, counts, strict=True)]


def joined(pieces: Sequence[Piece]) -> Piece:
    """Return neighbouring pieces of one group of outputs as one."""
    floats, inputs = sum(it.floats for it in pieces), sum(it.inputs for it in pieces)
    return replace(pieces[0], floats=floats, inputs=inputs)


def seconds_of(piece: Piece, positions: int) -> float:
    """Return the seconds of the sums of one group of outputs over so many positions."""
    return 2.0 * piece.floats * positions * SHARE / DIRECT_RATE


def slab_gradient(
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
    """Declare the task that adds what one slab brings to all filters of a group of outputs."""
    (source, gradient), (samples, low, high) = factors, slab
    vectors, block = piece.width // LANES, piece.first_output // LANES
    z0, z1, y0, y1 = gradient.box(low, high)
    source_z, gradient_z = source.z_stride * edge.stride[0], gradient.z_stride
    if len(samples) > 1:
        z1, source_z, gradient_z = len(samples), source.batch_stride, gradient.batch_stride
    positions = len(samples) * (high - low) * prod(gradient.shape) // gradient.extent
    dilation = build.layout.geometry.dilations[edge.name]
    seen = source_range(edge, dilation, gradient.cut, low, high)
    step.add(
        KERNELS[vectors - 1],
        {
            "source": source.at(samples.start, 0),
            "source_block": source.block_stride,
            "source_z": source_z,
            "source_y": source.y_stride,
            "channels": piece.inputs,
            "taps_y": edge.size[1],
            "gradient": gradient.at(samples.start, block),
            "gradient_block": gradient.block_stride,
            "gradient_z": gradient_z,
            "gradient_y": gradient.y_stride,
            "z0": z0,
            "z1": z1,
            "y0": y0,
            "y1": y1,
            "width": gradient.shape[2],
            "target": place,
        },
        what=Identity(edge.name, Pass.WEIGHT, Part.DIRECT),
        cost=seconds_of(piece, positions),
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
        ],
        writes=[region],
    )
