"""Filter gradients by Winograd's minimal filtering as tasks: fixed ranges of the tiles, and their sum."""

from __future__ import annotations

from itertools import pairwise

from znnpy_kernels.winograd.gradient import gradient_floats, winograd_gradient

from znnpy.engine.convolution.winograd.passes import (
    place_words,
    shape_of,
    size_words,
    tile_planes,
    tile_words,
)
from znnpy.engine.memory.build import Build
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.identity import Identity, Part, Pass
from znnpy.engine.tasks.step import Step, combine_flat
from znnpy.network.types import Edge, Triple
from znnpy.plan.algorithms.winograd import NEW, weight_seconds

RANGE_SECONDS = 4e-4  # at least: each range clears and transforms back sums of its own
PARTIAL_BYTES = 1 << 22  # of gradients of ranges side by side
FEWEST_RANGES = 16  # that are allowed however large a layer's filters are


def weight_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Products of tiles of source and gradient, summed: a fixed tree over ranges and batch."""
    parameter, source = build.parameters[edge.name], build.seen(edge)
    dilation = build.layout.geometry.dilations[edge.name]
    seconds = weight_seconds(shape_of(build, edge, source, gradient)) / gradient.batch
    tasks = [
        (batch, *cut)
        for batch in range(gradient.batch)
        for cut in pairwise(_cuts(gradient, dilation, seconds, parameter.floats))
    ]
    leaves = build.partial_gradients(edge.name, len(tasks))
    words = {
        "inputs": source.images,
        "blocks": gradient.blocks,
        **size_words("source_size", source.shape),
        **size_words("gradient_size", gradient.shape),
        **size_words("dilation", dilation),
        **build.worker_scratch(gradient_floats(source.images, gradient.images)),
    }
    planes = tile_planes(gradient, dilation)
    for (batch, low, high), leaf in zip(tasks, leaves, strict=True):
        first, last = _planes(gradient, dilation, low, high)
        step.add(
            winograd_gradient,
            {
                **words,
                **place_words("source", source, batch),
                **place_words("gradient", gradient, batch),
                **tile_words(gradient, dilation, low, high),
                "target": leaf.address,
            },
            what=Identity(edge.name, Pass.WEIGHT, Part.WINOGRAD),
            cost=seconds * (high - low) / planes,
            reads=[
                *source.regions(
                    batch, first, min(source.extent, last + 2 * dilation[gradient.cut])
                ),
                *gradient.regions(batch, first, last),
            ],
            writes=[leaf.region(0, len(parameter.pieces))],
        )
    for index, piece in enumerate(parameter.pieces):
        places = [leaf.address + 4 * piece.start for leaf in leaves]
        regions = [leaf.region(index, index + 1) for leaf in leaves]
        what = Identity(edge.name, Pass.WEIGHT, Part.SUM)
        combine_flat(step, places, regions, piece.floats, what)


def _cuts(gradient: Tensor, dilation: Triple, seconds: float, floats: int) -> list[int]:
    """Where the tiles along the cut axis are cut into ranges: sizes alone decide."""
    planes = tile_planes(gradient, dilation)
    most = max(FEWEST_RANGES, PARTIAL_BYTES // (4 * floats)) // gradient.batch
    count = max(1, min(planes, most, int(seconds / RANGE_SECONDS)))
    return [planes * cut // count for cut in range(count + 1)]


def _planes(gradient: Tensor, dilation: Triple, low: int, high: int) -> tuple[int, int]:
    """Planes among which those of some tiles lie."""
    apart = dilation[gradient.cut]
    first, last = low // apart, -(-high // apart)
    return first * NEW * apart, min(gradient.extent, last * NEW * apart)
