"""Tasks of weight gradients by Winograd's minimal filtering: fixed ranges of tiles, and their sum."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from typing import NamedTuple

from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd.planar_gradient import (
    WINOGRAD_PLANAR_GRADIENT,
    planar_gradient_floats,
)
from znnpy_kernels.winograd.weight_gradient import WINOGRAD_GRADIENT, gradient_floats

from znnpy.engine.convolution.padding_taps import clear_unmet
from znnpy.engine.convolution.winograd.arguments import (
    dilation_of,
    place_words,
    size_words,
    tile_planes,
    tile_rows,
    tile_words,
    unframed,
)
from znnpy.engine.convolution.winograd.passes import shape_of
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.parameters import Piece
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.step import Step, combine_pieces
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network.types import Edge, Triple
from znnpy.plan.algorithms.winograd import new_voxels, panels, range_count, weight_seconds
from znnpy.plan.partition import evenly


class _Panel(NamedTuple):
    """Filter gradients of a task: between blocks `sources` and `targets` of images, so some pieces in a row."""

    sources: range
    targets: range
    pieces: range


def weight_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Declare products of tiles of source and gradient, summed by a fixed tree over ranges and batch."""
    parameter, source = build.parameters[edge.name], build.seen(edge)
    size, dilation = edge.size, dilation_of(build, edge)
    shape, planes = shape_of(build, edge, source, gradient), tile_planes(gradient, size, dilation)
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
    kernel, needs, before = WINOGRAD_GRADIENT[size], gradient_floats, unframed(build, edge)
    parts = _panels(size, parameter.pieces, source.blocks)
    if source.lanes == 1:
        kernel, needs = WINOGRAD_PLANAR_GRADIENT[size], planar_gradient_floats
        whole = range(len(parameter.pieces))
        parts = [_Panel(range(source.blocks), range(gradient.blocks), whole)]
        words |= {"width": parameter.pieces[0].width, **size_words("before", before)}
    for ((batch, low, high, own), leaf), panel in product(zip(tasks, leaves, strict=True), parts):
        first, last = _planes(gradient, size, dilation, low, high)
        beyond = (size[gradient.cut] - 1) * dilation[gradient.cut] - before[gradient.cut]
        first_seen = max(0, first - before[gradient.cut])
        seen = min(source.extent, last + beyond)
        pieces = [parameter.pieces[piece] for piece in panel.pieces]
        # Pieces go by outputs first: those of the first group of outputs have all inputs of the
        # panel.
        inputs = sum(piece.inputs for piece in pieces[: len(panel.sources)])
        # A panel's part of the products; what panels repeat is small beside it.
        share = sum(piece.floats for piece in pieces) / parameter.floats
        step.add(
            kernel,
            {
                **words,
                **place_words("source", source, batch),
                **place_words("gradient", gradient, batch),
                **tile_words(gradient, size, dilation, low, high, own),
                **build.worker_scratch(needs(size, inputs, gradient.lanes * len(panel.targets))),
                "inputs": inputs,
                "blocks": len(panel.targets),
                "source": source.at(batch, panel.sources.start),
                "gradient": gradient.at(batch, panel.targets.start),
                "target": leaf.address + 4 * pieces[0].start,
            },
            what=Identity(edge.name, Pass.WEIGHT, Part.WINOGRAD),
            cost=seconds * (high - low) / planes * len(own) / len(rows) * share,
            reads=[
                *(
                    it
                    for block in panel.sources
                    for it in source.met(batch, block, first_seen, seen)
                ),
                *(it for block in panel.targets for it in gradient.met(batch, block, first, last)),
            ],
            writes=[leaf.region(panel.pieces.start, panel.pieces.stop)],
        )
    what = Identity(edge.name, Pass.WEIGHT, Part.SUM)
    combine_pieces(step, leaves, parameter.pieces, what, build.layout.grain)
    clear_unmet(step, build, edge)


def _panels(size: Triple, pieces: Sequence[Piece], blocks: int) -> list[_Panel]:
    """Return panels of all pieces: groups of outputs with all `blocks` of inputs, or one group with some of them."""
    widths = [pieces[first].width // LANES for first in range(0, len(pieces), blocks)]
    parts, together = panels(size, blocks, LANES)
    found = []
    for first in range(0, len(widths), together):
        last = min(len(widths), first + together)
        targets = range(sum(widths[:first]), sum(widths[:last]))
        for low, high in pairwise(blocks * part // parts for part in range(parts + 1)):
            # Contiguous: either all inputs of several groups of outputs, or some inputs of one
            # group.
            own = range(first * blocks + low, (last - 1) * blocks + high)
            found.append(_Panel(range(low, high), targets, own))
    return found


def _planes(
    gradient: Tensor, size: Triple, dilation: Triple, low: int, high: int
) -> tuple[int, int]:
    """Return the planes among which those of some tiles lie."""
    apart, new = dilation[gradient.cut], new_voxels(size)[gradient.cut]
    first, last = low // apart, -(-high // apart)
    return first * new * apart, min(gradient.extent, last * new * apart)
