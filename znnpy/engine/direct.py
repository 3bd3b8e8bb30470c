"""Direct convolution as tasks: output groups times parts of the image, all passes."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from znnpy_kernels.direct_forward import NO_LIMIT, forward_kernel
from znnpy_kernels.direct_gradient import weight_gradient_kernel
from znnpy_kernels.filters import group_offset, output_groups, packed_size, transpose_filters
from znnpy_kernels.lanes import LANES
from znnpy_kernels.rows import spread_rows

from znnpy.engine.build import Build
from znnpy.engine.dependencies import Region
from znnpy.engine.parameters import Piece
from znnpy.engine.pooling import source_range
from znnpy.engine.step import Step, combine_flat, counts, plane_parts, rows_of
from znnpy.engine.tensors import Tensor
from znnpy.network.types import Edge, Triple
from znnpy.plan import ConvShape, direct_seconds, parts
from znnpy.plan.cost import DIRECT_RATE, MEMORY_RATE

ORIGIN = (0, 0, 0)
# About 2000 positions of 16 lanes, source and gradient: a slab stays in the L2 cache.
SLAB_BYTES = 1 << 18
MOST_SLABS = 16  # partial weight gradients kept side by side


def forward(step: Step, build: Build, edge: Edge) -> None:
    """Cross-correlation of the source's images with the filters, into the edge's contribution."""
    source, target = build.value(edge.source), build.images.contributions[edge.name]
    parameter = build.parameters[edge.name]
    dilation = build.layout.geometry.dilations[edge.name]
    taps = prod(edge.size)
    seconds = _seconds(build, edge)
    blocks = -(-source.images // source.lanes)
    first = 0
    for group, vectors in enumerate(output_groups(target.images)):
        words = {
            **_source_words(source, edge.stride, edge.size, dilation, 1),
            "filters": parameter.values + 4 * group_offset(group, source.images, taps),
            **_limits(None, ORIGIN),
        }
        filters = parameter.values_region(group * blocks, (group + 1) * blocks)
        for batch in range(target.batch):
            for low, high in parts(target.extent, _share(seconds, target, vectors)):
                wide = source_range(edge, dilation, target.cut, low, high)
                step.add(
                    forward_kernel(vectors, words["source_x"]),
                    {
                        **words,
                        "source": source.at(batch),
                        **_target_words(target, batch, first, low, high),
                    },
                    name=edge.name,
                    kind="direct",
                    cost=_share(seconds, target, vectors) * (high - low) / target.extent,
                    reads=[filters, *source.regions(batch, *wide)],
                    writes=_blocks_written(target, batch, first, vectors, low, high),
                )
        first += vectors


def data_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Full correlation of the gradient with transposed filters, into what goes back to the source."""
    target = build.images.backward[edge.name]
    if max(edge.stride) > 1:
        gradient = _spread(step, build, edge, gradient)
    dilation = build.layout.geometry.dilations[edge.name]
    taps = prod(edge.size)
    transposed = _transposed(build, edge)
    seconds = _seconds(build, edge)
    back = (-dilation[0], -dilation[1], -dilation[2])
    first = 0
    for group, vectors in enumerate(output_groups(target.images)):
        words = {
            **_source_words(gradient, (1, 1, 1), edge.size, dilation, -1),
            "filters": transposed + 4 * group_offset(group, gradient.images, taps),
            **_limits(gradient.shape, back),
        }
        for batch in range(target.batch):
            for low, high in parts(target.extent, _share(seconds, target, vectors)):
                reach = (edge.size[target.cut] - 1) * dilation[target.cut]
                seen = max(0, low - reach), min(gradient.extent, high)
                step.add(
                    forward_kernel(vectors, words["source_x"]),
                    {
                        **words,
                        "source": gradient.at(batch),
                        **_target_words(target, batch, first, low, high),
                    },
                    name=f"{edge.name} backward",
                    kind="direct",
                    cost=_share(seconds, target, vectors) * (high - low) / target.extent,
                    reads=[
                        _transposed_region(edge, 0, gradient.images),
                        *gradient.regions(batch, *seen),
                    ],
                    writes=_blocks_written(target, batch, first, vectors, low, high),
                )
        first += vectors


def weight_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Products of source and gradient summed over positions: a fixed tree over parts and batch."""
    parameter = build.parameters[edge.name]
    slabs = _slabs(build, edge, gradient)
    leaves = [parameter.gradient] + [
        build.scratch(("partial gradient", edge.name, leaf), parameter.floats)
        for leaf in range(1, len(slabs))
    ]
    for index, piece in enumerate(parameter.pieces):
        regions = [parameter.gradient_region(index, index + 1)] + [
            Region(("partial gradient", edge.name, leaf), index, index + 1)
            for leaf in range(1, len(slabs))
        ]
        places = [leaf + 4 * piece.start for leaf in leaves]
        for slab, place, region in zip(slabs, places, regions, strict=True):
            _slab_gradient(step, build, edge, gradient, piece, slab, place, region)
        combine_flat(step, places, regions, piece.floats, f"{edge.name} gradient sum")


def _slabs(build: Build, edge: Edge, gradient: Tensor) -> list[tuple[int, int, int]]:
    """(batch, low, high): parts of the gradient that, with their source, fit the L2 cache."""
    planes = gradient.shape[1 - gradient.cut] * gradient.shape[2]
    bytes_ = gradient.extent * planes * 4 * LANES * 2 * prod(edge.stride)
    wanted = min(gradient.extent, -(-bytes_ // SLAB_BYTES), max(1, MOST_SLABS // gradient.batch))
    cuts = [gradient.extent * part // wanted for part in range(wanted + 1)]
    return [(batch, *cut) for batch in range(gradient.batch) for cut in pairwise(cuts)]


def _slab_gradient(
    step: Step,
    build: Build,
    edge: Edge,
    gradient: Tensor,
    piece: Piece,
    slab: tuple[int, int, int],
    place: int,
    region: Region,
) -> None:
    """One slab's part of one piece, by ranges of tap rows: they write side by side."""
    source, (batch, low, high) = build.value(edge.source), slab
    dilation = build.layout.geometry.dilations[edge.name]
    wide = source_range(edge, dilation, gradient.cut, low, high)
    vectors = piece.width // LANES
    source_block, block = piece.first_input // source.lanes, piece.first_output // LANES
    words = _source_words(source, edge.stride, edge.size, dilation, 1)
    del words["taps_z"], words["source_block"]
    z0, z1, y0, y1 = gradient.box(low, high)
    flops = 2.0 * piece.floats * (high - low) * prod(gradient.shape) / gradient.extent
    for first, last in parts(edge.size[0] * edge.size[1], flops / DIRECT_RATE):
        step.add(
            weight_gradient_kernel(vectors, source.lanes),
            {
                **words,
                "source": source.at(batch, source_block),
                "channels": piece.inputs,
                "tap_row0": first,
                "tap_row1": last,
                "gradient": gradient.at(batch, block),
                "gradient_block": gradient.block_stride,
                "gradient_z": gradient.z_stride,
                "gradient_y": gradient.y_stride,
                "z0": z0,
                "z1": z1,
                "y0": y0,
                "y1": y1,
                "width": gradient.shape[2],
                "target": place,
                "accumulate": 0,
            },
            name=f"{edge.name} weight gradient",
            kind="direct",
            cost=flops / DIRECT_RATE * (last - first) / (edge.size[0] * edge.size[1]),
            reads=[
                source.region(batch, source_block, *wide),
                *_blocks_written(gradient, batch, block, vectors, low, high),
            ],
            writes=[region._replace(lane=first)],
        )


def transpose(step: Step, build: Build, edge: Edge) -> None:
    """Filters with inputs and outputs exchanged, for the data gradient."""
    parameter = build.parameters[edge.name]
    outputs, inputs, *size = parameter.shape
    seconds = parameter.floats * 16 / MEMORY_RATE
    for low, high in parts(outputs, seconds):
        step.add(
            transpose_filters,
            {
                "forward": parameter.values,
                "backward": _transposed(build, edge),
                "outputs": outputs,
                "inputs": inputs,
                "taps": prod(size),
                "o0": low,
                "o1": high,
            },
            name=f"{edge.name} transpose",
            kind="update",
            cost=seconds * (high - low) / outputs,
            reads=[parameter.values_region()],
            writes=[_transposed_region(edge, low, high)],
        )


def _spread(step: Step, build: Build, edge: Edge, gradient: Tensor) -> Tensor:
    """The gradient of a strided convolution with zeros between its voxels."""
    target = build.images.spread[edge.name]
    for batch in range(gradient.batch):
        for block in range(gradient.blocks):
            for low, high in plane_parts(gradient, 2):
                z, _, y, _ = gradient.box(low, high)
                step_z, step_y, step_x = edge.stride
                wide = low * edge.stride[gradient.cut], (high - 1) * edge.stride[gradient.cut] + 1
                step.add(
                    spread_rows,
                    {
                        **rows_of(gradient, "source", batch, block, low),
                        "target": target.at(batch, block, z * step_z, y * step_y),
                        "target_z": target.z_stride * step_z,
                        "target_y": target.y_stride * step_y,
                        **counts(gradient, low, high),
                        "step": step_x,
                        "width": gradient.shape[2],
                    },
                    name=f"{edge.name} spread",
                    kind="copy",
                    cost=gradient.row * gradient.shape[1] * (high - low) * 8 / MEMORY_RATE,
                    reads=[gradient.region(batch, block, low, high)],
                    writes=[target.region(batch, block, *wide)],
                )
    return target


def _transposed(build: Build, edge: Edge) -> int:
    outputs, inputs, *size = build.parameters[edge.name].shape
    return build.scratch(("transposed", edge.name), packed_size(inputs, outputs, prod(size)))


def _transposed_region(edge: Edge, low: int, high: int) -> Region:
    return Region(("transposed", edge.name), low, high)


def _seconds(build: Build, edge: Edge) -> float:
    layout = build.layout
    return direct_seconds(ConvShape.of(edge, layout.network, layout.geometry, layout.batch))


def _share(seconds: float, tensor: Tensor, vectors: int) -> float:
    """Seconds of one output group of one image of the batch."""
    return seconds / tensor.batch * vectors / tensor.blocks


def _source_words(
    source: Tensor, stride: Triple, size: Triple, dilation: Triple, sign: int
) -> dict[str, int]:
    return {
        "source_block": source.block_stride,
        "source_z": source.z_stride * stride[0],
        "source_y": source.y_stride * stride[1],
        "source_x": source.lanes * stride[2],
        "source_lanes": source.lanes,
        "channels": source.images,
        "taps_z": size[0],
        "taps_y": size[1],
        "taps_x": size[2],
        "tap_z": sign * source.z_stride * dilation[0],
        "tap_y": sign * source.y_stride * dilation[1],
        "tap_x": sign * source.lanes * dilation[2],
    }


def _target_words(target: Tensor, batch: int, block: int, low: int, high: int) -> dict[str, int]:
    z0, z1, y0, y1 = target.box(low, high)
    return {
        "target": target.at(batch, block),
        "target_block": target.block_stride,
        "target_z": target.z_stride,
        "target_y": target.y_stride,
        "z0": z0,
        "z1": z1,
        "y0": y0,
        "y1": y1,
        "width": target.shape[2],
        "accumulate": 0,
    }


def _limits(shape: Triple | None, shift: Triple) -> dict[str, int]:
    limits = shape or (NO_LIMIT, NO_LIMIT, NO_LIMIT)
    words = {f"limit_{axis}": limit for axis, limit in zip("zyx", limits, strict=True)}
    return words | {f"shift_{axis}": step for axis, step in zip("zyx", shift, strict=True)}


def _blocks_written(
    tensor: Tensor, batch: int, block: int, vectors: int, low: int, high: int
) -> list[Region]:
    return [tensor.region(batch, block + i, low, high) for i in range(vectors)]
