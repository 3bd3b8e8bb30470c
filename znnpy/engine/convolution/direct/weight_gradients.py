"""Tasks of direct weight gradients: pieces of filters times slabs of planes, or outer products for 1-voxel outputs.

Layers whose outputs have one voxel take outer products summed over samples, if they are no rows of samples
(`passes.py`): of a single sample, with dilation or with padding. Slabs, one for each sample, would take ten times as
long for 8 samples, 64 to 64 channels and dilated 3^3 filters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

from znnpy_kernels.direct.outer_product import AT, TOGETHER, outer_weight_gradient
from znnpy_kernels.direct.weight_gradient import MOST_EARLIER
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.convolution.direct import filtered_rows, maxima
from znnpy.engine.convolution.direct.correlation import blocks_of, source_words
from znnpy.engine.convolution.direct.filtered_rows import by_outputs, joined
from znnpy.engine.convolution.direct.slab_gradient import Slab, slab_gradient, takes_few_inputs
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
    together = by_outputs(pieces)
    # Kernels of first layers do all taps of a group of outputs: their tasks are cut by slabs alone, of light sums.
    group = joined(pieces[together[0].start : together[0].stop])
    leaves: Sequence[Any] = ()
    emit: Callable[..., None] = slab_gradient
    if pooling := weighed_by_maxima(build.layout, build.layout.network.node(edge.target)):
        own = build.maps.gradients[pooling.target]
        pairs = min(group.width, own.channels) * group.inputs
        seconds = maxima.seconds_of(edge, pairs, own.batch * prod(own.shape))
        leaves = _slabs(edge, source, gradient, seconds, own)
        emit = partial(maxima.slab_gradient, pooling)
    elif is_outer(source, gradient):
        leaves, emit = sample_groups(gradient.batch), outer_products
        together = [range(index, index + 1) for index in range(len(pieces))]
    elif filtered_rows.takes(build, edge, source, gradient):
        seconds = filtered_rows.seconds_of(group, gradient.batch * prod(gradient.shape))
        leaves = _slabs(edge, source, gradient, seconds)
        emit = filtered_rows.slab_gradient
    leaves = leaves or _slabs(edge, source, gradient)
    buffers = build.partial_gradients(edge.name, len(leaves))
    # With several slabs a tree over slabs comes first, and no task has the whole sum to add to.
    if len(leaves) == 1 and emit is slab_gradient and _adds_earlier(build, edge, source, gradient):
        earlier = _earlier_sums(step, build, edge)
        buffers, emit = earlier[-1:] or buffers, partial(slab_gradient, earlier=earlier)
    # All pieces of a slab follow each other: its planes are in near caches for all but the first.
    for leaf, buffer in zip(leaves, buffers, strict=True):
        for some in together:
            piece = joined(pieces[some.start : some.stop])
            region = buffer.region(some.start, some.stop)
            place = buffer.address + 4 * piece.start
            beside = len(pieces) * len(leaves)
            emit(step, build, edge, (source, gradient), piece, leaf, place, region, beside)
    what = Identity(edge.name, Pass.WEIGHT, Part.SUM)
    combine_pieces(step, buffers, pieces, what, build.layout.grain)


def _adds_earlier(build: Build, edge: Edge, source: Tensor, gradient: Tensor) -> bool:
    """Return whether tasks leave the gradient of one microbatch alone, to which their kernel can add others."""
    parameter = build.parameters[edge.name]
    # Constraints on gradients are tasks of their own behind these, and must see one microbatch
    # alone.
    as_made = edge.repeat == ONCE and parameter.groups == 1 and not parameter.standardized
    return as_made and gradient.lanes > 1 and not takes_few_inputs(build, edge, source)


def _earlier_sums(step: Step, build: Build, edge: Edge) -> list[Buffer]:
    """Return what earlier microbatches have left that can be added once this one is there, in the tree's order."""
    pairs = build.pairs[:MOST_EARLIER]
    # Told to `emit_gradients`, which declares the additions that are left.
    step.added[edge.name] = len(pairs)
    return [build.slots[into][edge.name].gradient_buffer for into, _ in pairs]


def _slabs(
    edge: Edge,
    source: Tensor,
    gradient: Tensor,
    light: float = 0.0,
    maxima: Tensor | None = None,
) -> list[Slab]:
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
        return [Slab(range(*group), 0, extent) for group in groups]
    wanted = min(extent, -(-bytes_ // SLAB_BYTES), max(1, MOST_SLABS // gradient.batch))
    wanted = min(extent, max(wanted, leaves // gradient.batch))
    cuts = evenly(extent, wanted)
    return [Slab(range(it, it + 1), *cut) for it in range(gradient.batch) for cut in cuts]


def _flat(edge: Edge, source: Tensor, gradient: Tensor) -> bool:
    """Return whether samples are planes that filters see one by one, as they would those of a volume."""
    return source.shape[0] == gradient.shape[0] == edge.size[0] == 1
