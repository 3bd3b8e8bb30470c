"""Tasks of direct weight gradients: pieces of filters times slabs of planes, or outer products for 1-voxel outputs.

Layers whose outputs have one voxel take outer products summed over samples, if they are no rows of samples
(`passes.py`): of a single sample, with dilation or with padding. Slabs, one for each sample, would take ten times as
long for 8 samples, 64 to 64 channels and dilated 3^3 filters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

from znnpy_kernels.direct.few_channels_gradient import FEW_INPUTS, FEW_OUTPUTS, WIDEST, most_rows
from znnpy_kernels.direct.outer_product import AT, TOGETHER, outer_weight_gradient
from znnpy_kernels.direct.weight_gradient import (
    MOST_EARLIER,
    OPEN,
    earlier_words,
    weight_gradient_kernel,
    zeros_words,
)
from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.convolution.direct import filtered_rows, maxima
from znnpy.engine.convolution.direct.correlation import blocks_of, source_words
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.parameters import Piece
from znnpy.engine.memory.regions import Buffer, Region
from znnpy.engine.memory.tensors import Tensor, source_range
from znnpy.engine.memory.winners import weighed_by_maxima
from znnpy.engine.tasks.step import Step, combine_pieces
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network.types import ONCE, Edge
from znnpy.plan import ranges
from znnpy.plan.algorithms.direct import DIRECT_RATE
from znnpy.plan.cost import MEMORY_RATE
from znnpy.plan.partition import evenly, light_ranges

# About 2000 positions of 16 lanes, source and gradient: a slab stays in the L2 cache.
SLAB_BYTES = 1 << 18
MOST_SLABS = 16  # partial weight gradients kept side by side


def is_outer(source: Tensor, gradient: Tensor) -> bool:
    """Return whether every tap meets one voxel of each sample, in blocks of images."""
    return prod(gradient.shape) == 1 and source.lanes == gradient.lanes == LANES


def sample_groups(samples: int) -> list[range]:
    """Return the samples that each task adds: the nodes of one level of the tree over all."""
    starts = range(0, samples, TOGETHER)
    return [range(first, min(first + TOGETHER, samples)) for first in starts]


def outer_products(
    step: Step,
    build: Build,
    edge: Edge,
    factors: tuple[Tensor, Tensor],
    piece: Piece,
    samples: range,
    place: int,
    region: Region,
    beside: int,
) -> None:
    """Declare the tasks that add what some samples bring to one piece of `beside`, by ranges of tap rows."""
    source, gradient = factors
    dilation = build.layout.geometry.dilations[edge.name]
    wide = source_range(edge, dilation, gradient.cut, 0, 1)
    source_block, block = piece.first_input // LANES, piece.first_output // LANES
    vectors, rows = piece.width // LANES, edge.size[0] * edge.size[1]
    seconds = 2.0 * piece.floats * len(samples) / DIRECT_RATE
    words = source_words(source, edge.stride, edge.size, dilation)
    for first, last in ranges(rows, seconds, beside=beside):
        step.add(
            outer_weight_gradient,
            {
                **{word: value for word, value in words.items() if word in AT._fields},
                "source": source.at(samples.start, source_block),
                "source_batch": source.batch_stride,
                "channels": piece.inputs,
                "tap_row0": first,
                "tap_row1": last,
                "gradient": gradient.at(samples.start, block),
                "gradient_block": gradient.block_stride,
                "gradient_batch": gradient.batch_stride,
                "outputs": vectors,
                "samples": len(samples),
                "target": place,
            },
            what=Identity(edge.name, Pass.WEIGHT, Part.DIRECT),
            cost=seconds * (last - first) / rows,
            reads=[
                *(source.region(sample, source_block, *wide) for sample in samples),
                *(
                    own
                    for sample in samples
                    for own in blocks_of(gradient, sample, block, vectors, 0, 1)
                ),
            ],
            writes=[region.as_strand(first)],
        )


def multiply(step: Step, build: Build, edge: Edge, source: Tensor, gradient: Tensor) -> None:
    """Declare the products of source and gradient summed over positions: a fixed tree over ranges and batch.

    Where one slab is all, its tasks also add what earlier microbatches have left (`Build.pairs`): their own sums are
    then written once, where each addition by a task of its own would read and write them again. Of first layers behind
    which maxima are taken, from the voxels that won (`maxima`).
    """
    pieces = build.parameters[edge.name].pieces
    together = [range(index, index + 1) for index in range(len(pieces))]
    # Kernels of first layers do all taps of a group of outputs: their tasks are cut by slabs alone, of light sums.
    groups = filtered_rows.by_outputs(pieces)
    group = filtered_rows.joined(pieces[groups[0].start : groups[0].stop])
    leaves: Sequence[Any] = ()
    emit: Callable[..., None] = _slab_gradient
    if pooling := weighed_by_maxima(build.layout, build.layout.network.node(edge.target)):
        own = build.maps.gradients[pooling.target]
        pairs = min(group.width, own.channels) * group.inputs
        seconds = maxima.seconds_of(edge, pairs, own.batch * prod(own.shape))
        leaves, together = _slabs(edge, source, gradient, seconds, own), groups
        emit = partial(maxima.slab_gradient, pooling)
    elif is_outer(source, gradient):
        leaves, emit = sample_groups(gradient.batch), outer_products
    elif filtered_rows.takes(build, edge, source, gradient):
        seconds = filtered_rows.seconds_of(group, gradient.batch * prod(gradient.shape))
        leaves, together = _slabs(edge, source, gradient, seconds), groups
        emit = filtered_rows.slab_gradient
    leaves = leaves or _slabs(edge, source, gradient)
    buffers = build.partial_gradients(edge.name, len(leaves))
    # With several slabs a tree over slabs comes first, and no task has the whole sum to add to.
    if len(leaves) == 1 and emit is _slab_gradient and _adds_earlier(build, edge, source, gradient):
        earlier = _earlier_sums(step, build, edge)
        buffers, emit = earlier[-1:] or buffers, partial(_slab_gradient, earlier=earlier)
    # All pieces of a slab follow each other: its planes are in near caches for all but the first.
    for leaf, buffer in zip(leaves, buffers, strict=True):
        for some in together:
            piece = filtered_rows.joined(pieces[some.start : some.stop])
            region = buffer.region(some.start, some.stop)
            place = buffer.address + 4 * piece.start
            beside = len(together) * len(leaves)
            emit(step, build, edge, (source, gradient), piece, leaf, place, region, beside)
    what = Identity(edge.name, Pass.WEIGHT, Part.SUM)
    combine_pieces(step, buffers, pieces, what, build.layout.grain)


def _adds_earlier(build: Build, edge: Edge, source: Tensor, gradient: Tensor) -> bool:
    """Return whether tasks leave the gradient of one microbatch alone, to which their kernel can add others."""
    parameter = build.parameters[edge.name]
    # Constraints on gradients are tasks of their own behind these, and must see one microbatch
    # alone.
    as_made = edge.repeat == ONCE and parameter.groups == 1 and not parameter.standardized
    return as_made and gradient.lanes > 1 and not _few_inputs(build, edge, source)


def _earlier_sums(step: Step, build: Build, edge: Edge) -> list[Buffer]:
    """Return what earlier microbatches have left that can be added once this one is there, in the tree's order."""
    pairs = build.pairs[:MOST_EARLIER]
    # Told to `emit_gradients`, which declares the additions that are left.
    step.added[edge.name] = len(pairs)
    return [build.slots[into][edge.name].gradient_buffer for into, _ in pairs]


class _Slab(NamedTuple):
    """What one leaf of a weight gradient's sum takes: planes low..high of the gradient of some samples."""

    samples: range
    low: int
    high: int


def _slabs(
    edge: Edge,
    source: Tensor,
    gradient: Tensor,
    light: float = 0.0,
    maxima: Tensor | None = None,
) -> list[_Slab]:
    """Return ranges of the gradient that fit the L2 cache with their source; of `maxima`, if these stand for it.

    `light`: seconds of a sum of few numbers, which has more of them.
    """
    extent = (maxima or gradient).extent
    leaves = len(light_ranges(gradient.batch * extent, light))
    planes = gradient.shape[1 - gradient.cut] * gradient.shape[2]
    lanes = gradient.lanes + source.lanes
    bytes_ = gradient.extent * planes * 4 * lanes * prod(edge.stride)
    # By sizes alone, as the number of slabs decides the order of additions.
    if bytes_ < SLAB_BYTES and _flat(edge, source, gradient):
        wanted = min(-(-gradient.batch * bytes_ // SLAB_BYTES), MOST_SLABS)
        groups = evenly(gradient.batch, max(wanted, leaves))
        return [_Slab(range(*group), 0, extent) for group in groups]
    wanted = min(extent, -(-bytes_ // SLAB_BYTES), max(1, MOST_SLABS // gradient.batch))
    wanted = min(extent, max(wanted, leaves // gradient.batch))
    cuts = evenly(extent, wanted)
    return [_Slab(range(it, it + 1), *cut) for it in range(gradient.batch) for cut in cuts]


def _flat(edge: Edge, source: Tensor, gradient: Tensor) -> bool:
    """Return whether samples are planes that filters see one by one, as they would those of a volume."""
    return source.shape[0] == gradient.shape[0] == edge.size[0] == 1


def _slab_gradient(
    step: Step,
    build: Build,
    edge: Edge,
    factors: tuple[Tensor, Tensor],
    piece: Piece,
    slab: _Slab,
    place: int,
    region: Region,
    beside: int,
    earlier: Sequence[Buffer] = (),
) -> None:
    """Declare the tasks that add what one slab brings to one piece, by ranges of tap rows, which write side by side.

    With the sums that lie in `earlier` as the piece does. `beside`: pieces of all slabs.
    """
    (source, gradient), (samples, low, high) = factors, slab
    dilation = build.layout.geometry.dilations[edge.name]
    wide = source_range(edge, dilation, gradient.cut, low, high)
    few = gradient.lanes == 1
    vectors = gradient.channels if few else piece.width // LANES
    # Planar tensors have a block for each channel.
    source_block, block = piece.first_input // source.lanes, piece.first_output // gradient.lanes
    z0, z1, y0, y1 = gradient.box(low, high)
    first_y, along = 0, gradient.shape[2]
    batch, gradient_z = samples.start, gradient.z_stride
    places = [buffer.address + 4 * piece.start for buffer in earlier]
    kernel, extra, most = _gradient_kernel(
        build, edge, source, vectors, places, len(samples), few=few
    )
    words = source_words(source, edge.stride, edge.size, dilation) | extra
    del words["taps_z"], words["source_block"]
    if len(samples) > 1:
        z1, gradient_z, words["source_z"] = len(samples), gradient.batch_stride, source.batch_stride
    if "vectors" in extra:
        del words["source_lanes"]
    if _follows(edge, source, gradient):
        first_y, y0, y1, along = y0, 0, 1, (y1 - y0) * along
    width = gradient.channels if few else piece.width
    flops = 2.0 * piece.floats / piece.width * width
    flops *= len(samples) * (high - low) * prod(gradient.shape) / gradient.extent
    seconds = flops / DIRECT_RATE + len(earlier) * 4 * piece.floats / MEMORY_RATE
    # Rows of taps along x, counted in z, y order.
    rows = edge.size[0] * edge.size[1]
    # Of the products alone: what is added was made by the same ranges.
    for first, last in ranges(-(-rows // most), flops / DIRECT_RATE, beside=beside):
        first, last = first * most, min(rows, last * most)
        step.add(
            kernel,
            {
                **words,
                "source": source.at(batch, source_block, 0, first_y),
                "channels": piece.inputs,
                "tap_row0": first,
                "tap_row1": last,
                "gradient": gradient.at(batch, block, 0, first_y),
                "gradient_block": gradient.block_stride,
                "gradient_z": gradient_z,
                "gradient_y": gradient.y_stride,
                "z0": z0,
                "z1": z1,
                "y0": y0,
                "y1": y1,
                "width": along,
                "target": place,
            },
            what=Identity(edge.name, Pass.WEIGHT, Part.DIRECT),
            cost=seconds * (last - first) / rows,
            reads=[
                *(it for own in samples for it in source.met(own, source_block, *wide)),
                *(
                    it
                    for own in samples
                    for it in blocks_of(gradient, own, block, vectors, low, high)
                ),
                *(buffer.region(region.low, region.high, strand=first) for buffer in earlier),
            ],
            writes=[region.as_strand(first)],
        )


def _follows(edge: Edge, source: Tensor, gradient: Tensor) -> bool:
    """Return whether filters of one tap see rows that lie one behind the other in both: one long row."""
    alike = edge.size == edge.stride == ONCE and source.shape == gradient.shape
    dense = all(it.lanes == LANES and it.y_stride == it.row for it in (source, gradient))
    return alike and dense


def _few_inputs(build: Build, edge: Edge, source: Tensor) -> bool:
    """Return whether there is a kernel for so few images, which lie planar."""
    dilation = build.layout.geometry.dilations[edge.name]
    return source.lanes == 1 and dilation[2] == 1 and edge.size[2] <= WIDEST


def _gradient_kernel(
    build: Build,
    edge: Edge,
    source: Tensor,
    vectors: int,
    earlier: Sequence[int],
    samples: int,
    *,
    few: bool,
) -> tuple[Kernel, dict[str, int], int]:
    """Return the kernel of a weight gradient, its own words, and how many rows of taps it does at once."""
    if few:
        return FEW_OUTPUTS[vectors - 1], {"vectors": 1, "outputs": vectors}, 1
    if _few_inputs(build, edge, source):
        kernel = FEW_INPUTS[edge.size[2] - 1]
        return kernel, {"vectors": vectors, "outputs": 0}, most_rows(edge.size[2])
    known = _known_zeros(build, edge, source, samples) | earlier_words(earlier)
    return weight_gradient_kernel(vectors, source.lanes), known, 1


def _known_zeros(build: Build, edge: Edge, source: Tensor, samples: int) -> dict[str, int]:
    """Return the words of the zeros around the source along z and y: products with these are left out."""
    dilation, sides = build.layout.geometry.dilations[edge.name], build.layout.padding(edge)
    padded = edge.kind == "conv" and edge.border == "zeros" and max(edge.stride) == 1

    def axis(number: int) -> tuple[int, int, int]:
        before, after = sides[number]
        # Samples of planes are counted along z.
        if not padded or (number == 0 and samples > 1):
            return 0, OPEN, dilation[number]
        return before, source.shape[number] - before - after, dilation[number]

    return zeros_words(axis(0), axis(1))
