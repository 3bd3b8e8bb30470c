"""Tasks of weight gradients by Winograd's minimal filtering: fixed ranges of tiles, and their sum; or two stages."""

from __future__ import annotations

from znnpy_kernels.winograd.planar_gradient import (
    WINOGRAD_PLANAR_GRADIENT,
    planar_gradient_floats,
)
from znnpy_kernels.winograd.weight_gradient import WINOGRAD_GRADIENT, gradient_floats

from znnpy.engine.convolution.padding_taps import clear_unmet, unmet_runs
from znnpy.engine.convolution.winograd.arguments import (
    dilation_of,
    place_words,
    size_words,
    tile_planes,
    tile_rows,
    tile_words,
    unframed,
)
from znnpy.engine.convolution.winograd.gradient_panels import planes_of
from znnpy.engine.convolution.winograd.gradient_stages import emit_joint, single_range
from znnpy.engine.convolution.winograd.passes import both_gradients, line_weights, shape_of
from znnpy.engine.convolution.winograd.slab_kernels import makes_both
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.regions import Buffer
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.step import Step, combine_pieces
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network.types import ONCE, Edge
from znnpy.plan.algorithms.winograd_gradients import (
    is_joint,
    range_count,
    weight_seconds,
)
from znnpy.plan.partition import evenly

LEAST_UPDATED = 1 << 22
"""Of filters, at least, that are updated while caches hold their gradient: others stay in caches as they are."""


def updates_at_once(step: Step, build: Build, edge: Edge) -> bool:
    """Return whether the tasks of the weight gradient update the filters as well: large ones, of a single range."""
    parameter, layer = build.parameters[edge.name], build.layout.plan.layers[edge.name]
    if step.at_once is None or not step.at_once.takes(parameter):
        return False
    # Whatever else is done to filters or their gradients is done in between.
    plain = parameter.groups == 1 and edge.repeat == ONCE and not unmet_runs(build.layout, edge)
    # The data gradient, which reads the filters before, is declared whole by these.
    back = edge.name not in build.maps.backward or layer.gradient in ("winograd", "direct")
    large = 4 * parameter.floats >= LEAST_UPDATED and build.seen(edge).lanes > 1
    shape = build.layout.conv_shape(edge)
    joint = large and is_joint(shape) and not makes_both(build, edge)
    return plain and back and joint and single_range(shape)


def weight_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Declare products of tiles of source and gradient, summed by a fixed tree over ranges and batch."""
    parameter, source = build.parameters[edge.name], build.seen(edge)
    if makes_both(build, edge):
        _add_up(step, build, edge, both_gradients(step, build, edge, gradient))
        return
    if build.layout.sums_lines(edge):
        _add_up(step, build, edge, line_weights(step, build, edge, gradient))
        return
    shape = shape_of(build, edge, source, gradient)
    if source.lanes > 1 and is_joint(shape):
        updated = updates_at_once(step, build, edge) and not step.keeps
        emit_joint(step, build, edge, gradient, shape, updated=updated)
        return
    size, dilation = edge.size, dilation_of(build, edge)
    planes = tile_planes(gradient, size, dilation)
    seconds, rows = weight_seconds(shape) / gradient.batch, tile_rows(gradient, size, dilation)
    # `range_count` goes by sizes alone, so the tree over ranges has the same bits everywhere.
    count = range_count(shape, planes * len(rows))
    cuts = evenly(planes, count)
    # More ranges than planes: each plane by rows, which share less of what they read.
    shares = evenly(len(rows), max(1, count // planes))
    tasks = [
        (batch, *cut, rows[first:last])
        for batch in range(gradient.batch)
        for cut in cuts
        for first, last in shares
    ]
    leaves = build.partial_gradients(edge.name, len(tasks))
    words = {
        **size_words("source_size", source.shape),
        **size_words("gradient_size", gradient.shape),
        **size_words("dilation", dilation),
    }
    before = unframed(build, edge)
    if source.lanes == 1:
        kernel, needs = WINOGRAD_PLANAR_GRADIENT[size], planar_gradient_floats
        words |= {"width": parameter.pieces[0].width, **size_words("before", before)}
    else:
        kernel, needs = WINOGRAD_GRADIENT[size], gradient_floats
    words |= build.worker_scratch(needs(size, source.channels, gradient.lanes * gradient.blocks))
    for (batch, low, high, own), leaf in zip(tasks, leaves, strict=True):
        first, last = planes_of(gradient, size, dilation, low, high)
        beyond = (size[gradient.cut] - 1) * dilation[gradient.cut] - before[gradient.cut]
        first_seen = max(0, first - before[gradient.cut])
        seen = min(source.extent, last + beyond)
        step.add(
            kernel,
            {
                **words,
                **place_words("source", source, batch),
                **place_words("gradient", gradient, batch),
                **tile_words(gradient, size, dilation, low, high, own),
                "inputs": source.channels,
                "blocks": gradient.blocks,
                "target": leaf.address + 4 * parameter.pieces[0].start,
            },
            what=Identity(edge.name, Pass.WEIGHT, Part.WINOGRAD),
            cost=seconds * (high - low) / planes * len(own) / len(rows),
            reads=[
                *source.regions(batch, first_seen, seen),
                *gradient.regions(batch, first, last),
            ],
            writes=[leaf.region(0, len(parameter.pieces))],
        )
    _add_up(step, build, edge, leaves)


def _add_up(step: Step, build: Build, edge: Edge, leaves: list[Buffer]) -> None:
    what = Identity(edge.name, Pass.WEIGHT, Part.SUM)
    combine_pieces(step, leaves, build.parameters[edge.name].pieces, what, build.layout.grain)
    clear_unmet(step, build, edge)
