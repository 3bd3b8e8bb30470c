"""Tasks of Winograd convolution, forward and data gradient: whole slabs of tiles, or three stages (`stages`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from znnpy_kernels.direct.epilogue import PLAIN
from znnpy_kernels.winograd.flat import TAPS_OF_PLANES
from znnpy_kernels.winograd.lines import lines_floats, winograd_lines_back

from znnpy.engine.convolution.winograd.arguments import (
    place_words,
    tile_planes,
    tile_rows,
    tile_words,
)
from znnpy.engine.convolution.winograd.filters import goes_staged, made
from znnpy.engine.convolution.winograd.marches import spreads
from znnpy.engine.convolution.winograd.operands import Ends, Finish, strands
from znnpy.engine.convolution.winograd.slab_kernels import makes_both, slab_kernel
from znnpy.engine.convolution.winograd.stages import emit_staged
from znnpy.engine.convolution.winograd.strided import emit_strided
from znnpy.engine.convolution.winograd.strided_back import emit_strided_back
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.joined_gradients import applied_backward
from znnpy.engine.memory.regions import Buffer
from znnpy.engine.memory.tensors import Planes, Tensor
from znnpy.engine.tasks.fusion import applied_forward
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.errors import PlanError
from znnpy.network.types import Edge, Triple
from znnpy.plan import ConvShape
from znnpy.plan.algorithms.winograd import backward_shape, refusal, winograd_seconds
from znnpy.plan.algorithms.winograd_gradients import most_ranges, range_count, weight_seconds
from znnpy.plan.algorithms.winograd_shallow import flat_edge, flat_of, is_shallow
from znnpy.plan.algorithms.winograd_strided import is_strided, takes
from znnpy.plan.algorithms.winograd_tiles import new_voxels
from znnpy.plan.partition import Cut, light_ranges, ranges, within


def forward(step: Step, build: Build, edge: Edge) -> None:
    """Declare the cross-correlation of the source's images with the filters, into the edge's contribution.

    Bias and function of the target are applied where no other edge converges.
    """
    source, target = build.seen(edge), build.maps.contributions[edge.name]
    shape, node = shape_of(build, edge, source, target), applied_forward(build.layout, edge)
    ends = Ends(build, edge, source, target, shape, node, backward=False)
    if is_strided(shape):
        emit_strided(step, ends, made(step, build, edge, backward=False))
    else:
        _emit(step, ends)


def data_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Declare the full correlation of the gradient with flipped, exchanged filters, into what goes back.

    The gradients of the source's function and bias are made where nothing else reads its images. Where the weight
    gradient has made it in passing, nothing is left to do.
    """
    if makes_both(build, edge):
        return
    ends = _back(build, edge, gradient)
    if is_strided(ends.shape):
        emit_strided_back(step, ends, made(step, build, edge, backward=True))
    else:
        _emit(step, ends)


def both_gradients(step: Step, build: Build, edge: Edge, gradient: Tensor) -> list[Buffer]:
    """Declare data and weight gradient in the same tasks; return what these leave behind, to be added up."""
    ends = _back(build, edge, gradient)
    return _emit_slabs(step, ends, made(step, build, edge, backward=True), weights=True)


def line_weights(step: Step, build: Build, edge: Edge, gradient: Tensor) -> list[Buffer]:
    """Declare a weight gradient row by row without a data gradient; return what its tasks leave behind."""
    values = build.maps.activations[edge.source]
    layer = shape_of(build, edge, values, gradient)
    # As if the data gradient were made, in place of the values, and nothing of it wanted.
    ends = Ends(build, edge, gradient, values, backward_shape(layer), None, backward=True)
    seconds, size, dilation = weight_seconds(layer) / values.batch, edge.size, ends.dilation
    cut = _cut_of_weights(ends, seconds)
    tasks = [
        task
        for batch in range(values.batch)
        for task in _cuts(values, size, dilation, seconds, batch, cut, 0, by_rows=False)
    ]
    leaves = build.partial_gradients(edge.name, len(tasks))
    pieces = len(build.parameters[edge.name].pieces)
    floats = lines_floats(gradient.channels, values.channels, weights=True)
    words = {**PLAIN, **ends.words, **build.worker_scratch(floats), "blocks": 0, "filters": 0}
    for leaf, task in zip(leaves, tasks, strict=True):
        step.add(
            winograd_lines_back,
            {
                **words,
                **place_words("source", gradient, task.batch),
                **place_words("target", values, task.batch),
                **tile_words(values, size, dilation, task.low, task.high, task.rows),
                **_weights(ends, leaf, task.batch),
            },
            what=Identity(edge.name, Pass.WEIGHT, Part.WINOGRAD),
            cost=seconds * _share(values, size, dilation, task),
            reads=[
                *gradient.regions(task.batch, *ends.seen(task.planes)),
                *values.regions(task.batch, *task.planes),
            ],
            writes=[leaf.region(0, pieces)],
        )
    return leaves


def _cut_of_weights(ends: Ends, seconds: float) -> Cut:
    """Return what cuts a pass that leaves weight gradients behind, `seconds` of an image: as many for any workers."""
    target, size, layer = ends.target, ends.edge.size, ends.build.layout.conv_shape(ends.edge)
    tiles = tile_planes(target, size, ends.dilation) * len(tile_rows(target, size, ends.dilation))
    if size == TAPS_OF_PLANES and ends.source.lanes > 1:
        # As many as those of a weight gradient alone: sums of 36 points are more to clear and to transform back.
        return within(range_count(layer, tiles), seconds)
    most = max(1, most_ranges(layer) // target.batch)
    return within(min(most, len(ranges(tiles, seconds))), seconds)


def _back(build: Build, edge: Edge, gradient: Tensor) -> Ends:
    target, node = build.back(edge), applied_backward(build.layout, edge)
    shape = backward_shape(shape_of(build, edge, target, gradient))
    return Ends(build, edge, gradient, target, shape, node, backward=True)


def shape_of(build: Build, edge: Edge, source: Tensor, target: Tensor) -> ConvShape:
    """Return the shape of an edge between images of these tensors; PlanError if winograd cannot run it."""
    shape = build.layout.conv_shape(edge)
    if why := refusal(shape.size, shape.stride):
        raise PlanError(f"{edge.name}: {why}")
    if is_strided(shape) and not takes(shape):
        raise PlanError(
            f"{edge.name}: dilated filters with a stride run by direct and spectral only"
        )
    if source.lanes != target.lanes:
        raise PlanError(
            f"{edge.name}: winograd runs between blocks of channels, or planar ones at both ends"
        )
    return shape


def _emit(step: Step, ends: Ends) -> None:
    layout = ends.build.layout
    if is_shallow(ends.shape):
        emit_staged(step, _flat(ends))
        return
    # Both ways give the same values; where sums for biases are left behind, sizes alone decide.
    staged = goes_staged(layout, ends.shape)
    if staged or spreads(layout, ends.edge, ends.shape, backward=ends.backward):
        emit_staged(step, ends)
    else:
        _emit_slabs(step, ends, made(step, ends.build, ends.edge, backward=ends.backward))


def _flat(ends: Ends) -> Ends:
    """Return a pass of a shallow layer as one of its planes, one by one, whose filters are yet those of all."""
    edge = flat_edge(ends.edge, ends.build.layout.padding(ends.edge))
    source = ends.source if ends.backward else ends.build.seen(edge)
    return replace(ends, edge=edge, source=source, shape=flat_of(ends.shape), layer=ends.edge)


LEAST_ROWS = 2
"""Rows of tiles that a march is at least long: its first tile transforms six rows of voxels, each other one four.

Single rows, which take some hundredths longer, where there would be fewer marches than workers.
"""


class _Slabs(NamedTuple):
    """Some tiles of one image of the batch: from `low` to `high` along the cut axis, and `rows` of them along y.

    `planes`: of the target, or rows of them, that they write; `strand`: which of several tasks' that lie between each
    other's, else -1.
    """

    batch: int
    low: int
    high: int
    rows: range
    planes: Planes
    strand: int


def _emit_slabs(step: Step, ends: Ends, points: Buffer, *, weights: bool = False) -> list[Buffer]:
    """Declare the tasks of whole slabs of tiles, each of which reads all filters.

    `weights`: with the weight gradient, of which each leaves a part behind.
    """
    source, target, size, dilation = ends.source, ends.target, ends.edge.size, ends.dilation
    seconds = winograd_seconds(ends.shape) / target.batch
    of_weights = weight_seconds(ends.build.layout.conv_shape(ends.edge)) if weights else 0.0
    kernel, floats, own = slab_kernel(ends, weights=weights)
    words = {
        **ends.words,
        **own,
        **ends.build.worker_scratch(floats),
        "filters": points.address,
    }
    # What leaves sums behind, for filters or for the bias, has the same leaves for any number of workers.
    of_bias: Cut = light_ranges if ends.backward and ends.node else ends.build.layout.grain.ranges
    cut = _cut_of_weights(ends, seconds) if weights else of_bias
    grain = ends.build.layout.grain
    few = grain.fewest if grain.many and not weights and cut is not light_ranges else 0
    tasks = [
        task
        for batch in range(target.batch)
        for task in _cuts(target, size, dilation, seconds, batch, cut, few, by_rows=grain.many)
    ]
    finish, blocks = Finish(ends, len(tasks)), range(target.blocks)
    part = Part.BOTH if weights else Part.WINOGRAD
    leaves = ends.build.partial_gradients(ends.edge.name, len(tasks)) if weights else []
    pieces = len(ends.build.parameters[ends.edge.name].pieces)
    for leaf, task in enumerate(tasks):
        written = strands(target.regions(task.batch, *task.planes), task.strand)
        step.add(
            kernel,
            {
                **words,
                **place_words("source", source, task.batch),
                **place_words("target", target, task.batch),
                **tile_words(target, size, dilation, task.low, task.high, task.rows),
                **finish.words(task.batch, blocks, leaf),
                **(_weights(ends, leaves[leaf], task.batch) if weights else {}),
            },
            what=ends.task(part),
            cost=(seconds + of_weights / target.batch) * _share(target, size, dilation, task),
            reads=[
                points.region(),
                *source.regions(task.batch, *ends.seen(task.planes)),
                *finish.reads(task.batch, blocks, task.planes),
                *(written if words["accumulate"] else ()),
                *(_values(ends).regions(task.batch, *task.planes) if weights else ()),
            ],
            writes=[
                *written,
                *finish.leaves_behind(leaf, blocks),
                *(it.region(0, pieces) for it in leaves[leaf : leaf + 1]),
            ],
        )
    if all(task.strand < 0 for task in tasks):
        step.note_cut(target, [task.planes for task in tasks if task.batch == 0])
    finish.emit_sum(step)
    return leaves


def _values(ends: Ends) -> Tensor:
    """Return the values of the source, whose gradient is the target."""
    return ends.build.maps.activations[ends.edge.source]


def _weights(ends: Ends, leaf: Buffer, batch: int) -> Mapping[str, int]:
    """Return the words of a task that makes a part of the weight gradient as well."""
    first = ends.build.parameters[ends.edge.name].pieces[0].start
    values = _values(ends)
    return {
        **place_words("values", values, batch),
        "channels": values.channels,
        "weights": leaf.address + 4 * first,
    }


def _cuts(
    target: Tensor,
    size: Triple,
    dilation: Triple,
    seconds: float,
    batch: int,
    cut: Cut,
    few: int,
    *,
    by_rows: bool,
) -> Iterator[_Slabs]:
    """Yield some slabs of all lattices each, or of one slab some lattices, or some rows of tiles of these.

    `few`: where there would be fewer tasks than that, these are as short as one row. `by_rows`: tasks say which rows
    they touch where these lie together, for the sake of many workers, as there are as many regions more.
    """
    apart, rows = dilation[target.cut], tile_rows(target, size, dilation)
    slabs = tile_planes(target, size, dilation) // apart
    together = cut(slabs, seconds)
    if len(together) < slabs:
        for low, high in together:
            tiles = low * apart, high * apart
            yield _Slabs(batch, *tiles, rows, _planes(target, size, dilation, *tiles), -1)
        return
    lattices = cut(apart, seconds / slabs)
    # The march goes along y: where that is not the cut axis it is cut as well.
    units = len(rows) // dilation[1] if target.cut == 0 else 1
    march = seconds / slabs / len(lattices)
    marches = cut(units, march, LEAST_ROWS)
    if target.batch * slabs * len(lattices) * len(marches) < few:
        marches = cut(units, march)
    step = len(rows) // units
    parts = [(*lattice, *march) for lattice in lattices for march in marches]
    # Without dilation marches write rows that lie together.
    plain, new = by_rows and apart == step == 1, new_voxels(size)[1]
    for slab in range(slabs):
        for strand, (low, high, first, last) in enumerate(parts):
            # Other tasks of one slab write every d-th plane or row of the same range, side by side.
            own = -1 if plain or not parts[1:] else strand
            tiles = slab * apart + low, slab * apart + high
            planes = _planes(target, size, dilation, *tiles)
            if plain and marches[1:]:
                planes = Planes(*planes[:2], first * new, min(target.rows, last * new))
            yield _Slabs(batch, *tiles, rows[first * step : last * step], planes, own)


def _share(target: Tensor, size: Triple, dilation: Triple, task: _Slabs) -> float:
    """Return the share of all tiles of an image that a task takes."""
    along = (task.high - task.low) / tile_planes(target, size, dilation)
    return along * len(task.rows) / len(tile_rows(target, size, dilation))


def _planes(target: Tensor, size: Triple, dilation: Triple, low: int, high: int) -> Planes:
    """Return the planes among which those of some tiles lie."""
    apart, new = dilation[target.cut], new_voxels(size)[target.cut]
    slab, first = divmod(low, apart)
    if high - low >= apart:
        return Planes(slab * new * apart, min(target.extent, high // apart * new * apart))
    # Some lattices of one slab: planes start, start + apart ... up to `new` of each lattice.
    start = slab * new * apart + first
    return Planes(start, min(target.extent, start + (new - 1) * apart + high - low))
