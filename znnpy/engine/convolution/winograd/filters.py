"""Tasks that transform filters to Winograd's points: kept between passes, or just before the passes that read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd.filters import EXCHANGING, FILTERS, SCRATCH_FLOATS, point_bytes
from znnpy_kernels.winograd.forms import FORMS
from znnpy_kernels.winograd.panel_filters import PAIR
from znnpy_kernels.winograd.strided import STRIDED_FILTERS
from znnpy_kernels.winograd.strided_back import STRIDED_EXCHANGING

from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.layout import Layout
from znnpy.engine.memory.regions import Buffer, Name, Use
from znnpy.engine.tasks.buffer_sharing import join
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network.types import ONCE, Edge
from znnpy.plan import PASSES, ConvShape
from znnpy.plan.algorithms.winograd import FILTER_RATE, backward_shape, is_staged, makes_filters
from znnpy.plan.algorithms.winograd_shallow import is_shallow
from znnpy.plan.algorithms.winograd_strided import is_strided
from znnpy.plan.algorithms.winograd_tiles import points_of_tile, tile_count
from znnpy.plan.cost import LANES_COUNTED

POINTS = Use("transformed filters")
SET_TILES = 64
"""Most tiles, about, that share filters while these are in a cache; of several images, if each has few."""


def derive(step: Step, build: Build, edge: Edge) -> None:
    """Declare the transformed filters of the passes that run by this algorithm, where they are kept."""
    layer, shape = build.layout.plan.layers[edge.name], build.layout.conv_shape(edge)
    if build.layout.filters_pass:
        return
    if layer.forward == "winograd" and not on_the_way(build.layout, shape):
        _derive(step, build, edge, backward=False)
    planned = build.layout.algorithm(edge, "gradient") == "winograd"
    backward = planned and edge.name in build.maps.backward
    if backward and not on_the_way(build.layout, backward_shape(shape)):
        _derive(step, build, edge, backward=True)


def goes_staged(layout: Layout, shape: ConvShape) -> bool:
    """Return whether a pass goes in stages instead of slabs; both give the same values, but for sums for biases."""
    # Not by whether filters are kept for other microbatches, which memory, workers and ranks decide: bits would, too.
    return is_staged(_remade(shape, changing=layout.training or layout.lean))


def on_the_way(layout: Layout, shape: ConvShape) -> bool:
    """Return whether a pass transforms its filters itself: where it costs less, and half the workers have tasks.

    Of shallow images always.
    """
    if is_strided(shape):
        return False
    if is_shallow(shape):
        return True
    seen = _remade(shape, changing=layout.filters_pass)
    # Lean layouts have the memory that their plan has counted.
    lanes = LANES_COUNTED if layout.lean else LANES
    if not (goes_staged(layout, shape) and makes_filters(seen, lanes)):
        return False
    sets = -(-shape.batch * tile_count(shape) // SET_TILES)
    tasks = FORMS[shape.size].points_z * -(-shape.outputs // (PAIR * LANES)) * sets
    return bool(2 * tasks >= layout.grain.fewest)


def _remade(shape: ConvShape, *, changing: bool) -> ConvShape:
    """Return the shape as one of a layer whose filters are changing from pass to pass, or never do."""
    return replace(shape, passes=PASSES if changing else ("forward",))


def made(step: Step, build: Build, edge: Edge, *, backward: bool) -> Buffer:
    """Return the transformed filters for a pass; declare their tasks unless they are kept."""
    points = points_of(build, edge, backward=backward)
    if build.layout.filters_pass:
        _derive(step, build, edge, backward=backward)
        # Many tasks write the points, and every task of the pass reads all of them.
        join(step, points)
    return points


def _derive(step: Step, build: Build, edge: Edge, *, backward: bool) -> None:
    runs = list(_exchanged(build, edge) if backward else _as_they_lie(build, edge))
    all_seconds = _seconds(edge, sum(run.vectors for run in runs))
    for own in _evenly_apart(runs):
        seconds = _seconds(edge, sum(run.vectors for run in own))
        for group in build.layout.grain.together(len(own), seconds, all_seconds):
            _transform(step, build, edge, own[group.start : group.stop], backward=backward)


def _transform(
    step: Step, build: Build, edge: Edge, runs: Sequence[_Run], *, backward: bool
) -> None:
    """Declare the task that transforms some filters, which are `_evenly_apart`."""
    parameter, points = build.parameters[edge.name], points_of(build, edge, backward=backward)
    words = {
        "target_point": _point_floats(build, edge, backward=backward),
        **build.worker_scratch(SCRATCH_FLOATS),
    }
    serves = Pass.BACKWARD if backward else Pass.FORWARD
    plain = edge.stride == ONCE
    exchanging = EXCHANGING if plain else STRIDED_EXCHANGING
    as_they_lie = FILTERS if plain else STRIDED_FILTERS
    step.add_calls(
        (exchanging if backward else as_they_lie)[edge.size],
        range(len(runs)),
        lambda number: {
            **words,
            **runs[number].words,
            "source": parameter.values + 4 * runs[number].source,
            "target": points.address + 4 * runs[number].target,
        },
        what=Identity(edge.name, serves, Part.FILTER_POINTS),
        cost=_seconds(edge, sum(run.vectors for run in runs)),
        divides=True,
        reads=[parameter.values_region()],
        writes=[points.region(strand=runs[0].target)],
    )


class _Run(NamedTuple):
    """Some vectors of LANES filters; floats before the first of the filters and of the points."""

    vectors: int
    source: int
    target: int
    words: Mapping[str, int]


def _evenly_apart(runs: Sequence[_Run]) -> Iterator[list[_Run]]:
    """Yield runs that follow each other in stretches: alike and equally far apart, but that the last may differ."""
    own = list[_Run]()
    for run in runs:
        if own and not _goes_on(own, run):
            yield own
            own = []
        own.append(run)
    yield own


def _goes_on(own: Sequence[_Run], run: _Run) -> bool:
    """Return whether a run follows the last one of a stretch as that one follows those before."""
    first, second, last = own[0], own[min(1, len(own) - 1)], own[-1]
    alike = last.words == first.words
    return len(own) == 1 or (
        alike
        and run.source - last.source == second.source - first.source
        and run.target - last.target == second.target - first.target
    )


def _as_they_lie(build: Build, edge: Edge) -> Iterator[_Run]:
    """Yield the filters for the forward pass: each piece's vectors of outputs, one behind the other."""
    inputs = build.parameters[edge.name].shape[1]
    for piece in build.parameters[edge.name].pieces:
        tap = piece.inputs * piece.width
        target = piece.first_output * inputs + piece.first_input * piece.width
        for low, high in build.layout.grain.ranges(tap // LANES, _seconds(edge, tap // LANES)):
            words = {"source_tap": tap, "vectors": high - low}
            yield _Run(high - low, piece.start + LANES * low, target + LANES * low, words)


def _exchanged(build: Build, edge: Edge) -> Iterator[_Run]:
    """Yield the filters for the data gradient: vectors of inputs, of one or two blocks, for each output."""
    outputs, inputs = build.parameters[edge.name].shape[:2]
    for piece in build.parameters[edge.name].pieces:
        # Two blocks of inputs are transposed together, so that neighbouring lines are written; the
        # piece before takes this one along.
        # Of a planar source each input is a piece, and all of them are one block.
        if piece.first_input % (2 * LANES):
            continue
        seen = min(2 * LANES, inputs - piece.first_input)
        blocks = -(-seen // LANES)
        many = min(piece.width, outputs - piece.first_output)
        target = piece.first_input * outputs + piece.first_output * blocks * LANES
        for low, high in build.layout.grain.ranges(many, _seconds(edge, many * blocks), LANES):
            words = {
                "inputs": seen,
                "outputs": high - low,
                "width": piece.width,
                "apart": build.parameters[edge.name].source_lanes == 1,
            }
            first = target + low * blocks * LANES
            yield _Run((high - low) * blocks, piece.start + low, first, words)


def _seconds(edge: Edge, vectors: int) -> float:
    # The bytes of points written, which bound it.
    return 4 * LANES * points_of_tile(edge.size) * vectors / FILTER_RATE


def _point_floats(build: Build, edge: Edge, *, backward: bool) -> int:
    images, others = build.parameters[edge.name].shape[:2]
    lanes, terms = (others, images) if backward else (images, others)
    return int(point_bytes(terms, -(-lanes // LANES))) // 4


def points_of(build: Build, edge: Edge, *, backward: bool) -> Buffer:
    floats = points_of_tile(edge.size) * _point_floats(build, edge, backward=backward)
    # Made for a pass they share memory; made once an update they stay.
    make = build.shared if build.layout.filters_pass else build.kept
    return make(Name(POINTS, edge.name, (backward,)), floats)
