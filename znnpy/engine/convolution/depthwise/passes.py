"""Tasks of depthwise convolution: forward, data gradient and weight gradient, by channel block and range of planes."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from znnpy_kernels.layers.depthwise import depthwise_back, depthwise_forward
from znnpy_kernels.layers.depthwise_gradient import depthwise_weight
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.regions import Region
from znnpy.engine.memory.tensors import Tensor, firsts, met_range, source_range
from znnpy.engine.tasks.step import Step, combine_pieces, counts, rows_of
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network.types import Edge, Triple
from znnpy.plan import ranges
from znnpy.plan.algorithms.depthwise import patch_seconds

ORIGIN = (0, 0, 0)
# Bytes of values and gradient: a slab stays in the L2 cache while its taps are summed.
# Larger slabs leave the cache between taps; smaller ones give more partial sums to add.
SLAB_BYTES = 1 << 20
MOST_SLABS = 16  # partial weight gradients kept side by side


def forward(step: Step, build: Build, edge: Edge) -> None:
    """Declare the cross-correlation of each channel with its filter."""
    source, target = build.seen(edge), build.maps.contributions[edge.name]
    dilation = build.layout.geometry.dilations[edge.name]
    for batch, block, low, high, cost in _parts(build, edge, target):
        wide = source_range(edge, dilation, target.cut, low, high)
        filters, read = _filters(build, edge, block)
        step.add(
            depthwise_forward,
            {
                **_words(build, edge, source, target, ORIGIN, batch, block, low, high),
                **filters,
            },
            what=Identity(edge.name, Pass.FORWARD, Part.DIRECT),
            cost=cost,
            reads=[source.region(batch, block, *wide), read],
            writes=[target.region(batch, block, low, high)],
        )


def data_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Declare the data gradient."""
    target, before = build.back(edge), firsts(build.layout.cropped(edge))
    dilation = build.layout.geometry.dilations[edge.name]
    # On each lattice of a stride other taps meet; the kernel sorts that out row by row.
    for batch, block, low, high, cost in _parts(build, edge, target):
        first = before[target.cut]
        seen = met_range(edge, dilation, gradient, low + first, high + first)
        filters, read = _filters(build, edge, block)
        step.add(
            depthwise_back,
            {
                **_words(build, edge, gradient, target, before, batch, block, low, high),
                **filters,
            },
            what=Identity(edge.name, Pass.BACKWARD, Part.DIRECT),
            cost=cost,
            reads=[gradient.region(batch, block, *seen), read],
            writes=[target.region(batch, block, low, high)],
        )


def weight_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Declare the weight gradient: products summed over positions, by a fixed tree over ranges and batch."""
    parameter = build.parameters[edge.name]
    slabs = _slabs(gradient)
    # Slabs are added by a tree of fixed shape, so that bits do not depend on the workers.
    leaves = build.partial_gradients(edge.name, len(slabs))
    for index, piece in enumerate(parameter.pieces):
        regions = [leaf.region(index, index + 1) for leaf in leaves]
        for block in range(piece.width // LANES):
            for slab, leaf, region in zip(slabs, leaves, regions, strict=True):
                place = leaf.address + 4 * (piece.start + LANES * block)
                into = {"sums": place, "filter_tap": piece.width}
                first = piece.first_output // LANES + block
                _slab_gradient(
                    step, build, edge, gradient, slab, first, into, region.as_strand(block)
                )
    what = Identity(edge.name, Pass.WEIGHT, Part.SUM)
    combine_pieces(step, leaves, parameter.pieces, what, build.layout.grain)


def derive(step: Step, build: Build, edge: Edge) -> None:
    """Do nothing: all passes read the filters themselves."""


def _slabs(gradient: Tensor) -> list[tuple[int, int, int]]:
    """Return (batch, low, high): ranges of the gradient that fit the L2 cache with their source."""
    # Four bytes of the gradient and about as many of the source for each position.
    bytes_ = 8 * prod(gradient.shape) * LANES
    most = max(1, MOST_SLABS // gradient.batch)
    wanted = min(gradient.extent, -(-bytes_ // SLAB_BYTES), most)
    cuts = [gradient.extent * cut // wanted for cut in range(wanted + 1)]
    return [(batch, *cut) for batch in range(gradient.batch) for cut in pairwise(cuts)]


def _slab_gradient(
    step: Step,
    build: Build,
    edge: Edge,
    gradient: Tensor,
    slab: tuple[int, int, int],
    block: int,
    into: dict[str, int],
    region: Region,
) -> None:
    source, (batch, low, high) = build.seen(edge), slab
    dilation = build.layout.geometry.dilations[edge.name]
    wide = source_range(edge, dilation, gradient.cut, low, high)
    step.add(
        depthwise_weight,
        {**_words(build, edge, source, gradient, ORIGIN, batch, block, low, high), **into},
        what=Identity(edge.name, Pass.WEIGHT, Part.DIRECT),
        cost=_seconds(build, edge, gradient) * (high - low) / gradient.extent,
        reads=[
            source.region(batch, block, *wide),
            gradient.region(batch, block, low, high),
        ],
        writes=[region],
    )


def _parts(build: Build, edge: Edge, target: Tensor) -> list[tuple[int, int, int, int, float]]:
    """Return (batch, block, low, high, seconds) of each task."""
    seconds = _seconds(build, edge, target)
    return [
        (batch, block, low, high, seconds * (high - low) / target.extent)
        for batch in range(target.batch)
        for block in range(target.blocks)
        for low, high in ranges(target.extent, seconds)
    ]


def _seconds(build: Build, edge: Edge, tensor: Tensor) -> float:
    """Return the seconds of a pass over one block."""
    return patch_seconds(build.layout.conv_shape(edge), None) / tensor.batch / tensor.blocks


def _filters(build: Build, edge: Edge, block: int) -> tuple[dict[str, int], Region]:
    """Return the argument words of a block's filters, and the region that they read."""
    # Outputs are packed in groups of two vectors (`output_groups`), so two blocks share a piece.
    parameter, panel = build.parameters[edge.name], block // 2
    piece = parameter.pieces[panel]
    # The block's lanes within the piece's one or two vectors of outputs.
    place = parameter.values + 4 * (piece.start + LANES * block - piece.first_output)
    words = {"filters": place, "filter_tap": piece.width}
    return words, parameter.values_region(panel, panel + 1)


def _words(
    build: Build,
    edge: Edge,
    source: Tensor,
    target: Tensor,
    before: Triple,
    batch: int,
    block: int,
    low: int,
    high: int,
) -> dict[str, float]:
    """Return the argument words of planes low..high of one block."""
    first_z, _, first_y, _ = target.box(low, high)
    named = {
        "window": edge.size,
        "stride": edge.stride,
        "dilation": build.layout.geometry.dilations[edge.name],
        "before": before,
        "inputs": source.shape,
    }
    return {
        **rows_of(source, "source", batch, block, 0),
        **rows_of(target, "target", batch, block, low),
        **counts(target, low, high),
        "first_plane": first_z,
        "first_row": first_y,
        "width": target.shape[2],
        **{
            f"{word}_{axis}": value
            for word, triple in named.items()
            for axis, value in zip("zyx", triple, strict=True)
        },
    }
