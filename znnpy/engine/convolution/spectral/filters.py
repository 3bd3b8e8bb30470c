"""Tasks that transform filters to spectra."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.spectral.filter_planes import (
    filter_planes,
    plane_floats,
    planes_floats,
)
from znnpy_kernels.spectral.filter_tiles import filter_tiles
from znnpy_kernels.spectral.tile_spectra import scratch_floats

from znnpy.engine.convolution.spectral.buffers import (
    FILTER_TILES,
    Filters,
    against,
    along,
    tile_of,
)
from znnpy.engine.convolution.spectral.column_tasks import (
    Columns,
    End,
    emit_columns_to,
)
from znnpy.engine.convolution.spectral.filter_runs import (
    Run,
    Taps,
    apart_of,
    images_of,
    phases,
    plane_parts,
    runs,
)
from znnpy.engine.convolution.spectral.tile_arguments import sizes
from znnpy.engine.convolution.tiles import PAIR
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.regions import Buffer, Name, Use
from znnpy.engine.tasks.buffer_sharing import join
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import PASS_OF, Identity, Part, Pass
from znnpy.network.types import Edge, Triple
from znnpy.plan import PassName
from znnpy.plan.partition import evenly
from znnpy.plan.tiles import (
    FILTER_RATE,
    FILTERS_KEPT_BYTES,
    PLANES_SHARE,
    frequencies,
    tile_seconds,
)

FILTER_PLANES = Use("planes of filters", "filter spectra")

# Vectors side by side that a task writes at each frequency: prefetched neighbours are mostly its own. Fewer: a task
# prefetches lines that another one is about to write. Layers of few channels have no more than FEWEST such tasks.
TOGETHER, FEWEST = 8, 4
# Of what a plane of taps takes, for one without.
ZEROS_SHARE = 0.25


class _Made(NamedTuple):
    """The spectra of an edge's filters that are made for a pass: by which step, where, and how they lie.

    `exchanged`: with inputs and outputs exchanged, not conjugate.
    """

    step: Step
    build: Build
    edge: Edge
    place: Filters
    serves: Pass
    exchanged: bool


class _Planes(NamedTuple):
    """Some planes of tiles of filters that one task transforms, into a buffer of all of them; columns come later."""

    place: Buffer
    low: int
    high: int


def derive(step: Step, build: Build, edge: Edge) -> None:
    """Declare the spectra of all filters, where they are kept."""
    if build.layout.filters_pass:
        return
    layer = build.layout.plan.layers[edge.name]
    reading: list[PassName] = ["forward"] if layer.forward == "spectral" else []
    if layer.gradient == "spectral" and edge.name in build.maps.backward:
        reading += ["gradient"]
    # Shared spectra are made once, in the forward pass's form.
    for which in reading[:1] if shares_filters(build, edge) else reading:
        _make(step, build, edge, backward=which == against(edge))


def filters_for(step: Step, build: Build, edge: Edge, *, backward: bool) -> Filters:
    """Return the spectra of all filters for a pass, `backward` against them.

    They are made now unless they are kept or the forward pass left them.
    """
    w = _filters_of(build, edge, backward=backward)
    if build.layout.filters_pass and step.once(w.place):
        _make(step, build, edge, backward=backward)
    return w


def shares_filters(build: Build, edge: Edge) -> bool:
    """Return whether the data gradient multiplies with the same spectra of filters as the forward pass."""
    layer = build.layout.plan.layers[edge.name]
    return layer.method("forward") == layer.method("gradient")


def _exchanges(build: Build, edge: Edge, *, backward: bool) -> bool:
    """Return whether spectra of filters have inputs and outputs exchanged, and are not conjugate."""
    return backward and not shares_filters(build, edge)


def _make(step: Step, build: Build, edge: Edge, *, backward: bool) -> None:
    """Declare the spectra of all filters for a pass, phase by phase."""
    w, exchanged = (
        _filters_of(build, edge, backward=backward),
        _exchanges(build, edge, backward=backward),
    )
    serves = PASS_OF[against(edge) if backward else along(edge)]
    made = _Made(step, build, edge, w, serves, exchanged)
    parts, planes = plane_parts(build, edge, w), []
    # Of first layers alone, whose filters are updated last and read first: others wait for nobody, and planes that
    # are written and read take longer. Kept ones are made by a single worker.
    if parts > 1 and w.inputs * w.blocks < FEWEST and build.layout.filters_pass:
        name = Name(FILTER_PLANES, edge.name, (backward,))
        place = build.shared(name, w.inputs * w.blocks * planes_floats(w.tile))
        taps = edge.size[0]
        # Zeros behind the taps wait for no update.
        ends = evenly(taps, parts) + [
            (taps + low, taps + high) for low, high in evenly(w.tile[0] - taps, parts) if high
        ]
        planes = [_Planes(place, *end) for end in ends]
    for first, images in phases(build, edge):
        _make_phase(made, first, images, planes)
    if planes:
        _emit_columns_to(made, planes[0].place)
    join(step, w.place)


def _emit_columns_to(made: _Made, place: Buffer) -> None:
    """Declare the transforms of all columns along z, from planes to spectra."""
    step, build, edge, w, serves, exchanged = made
    vectors, points = w.inputs * w.blocks, w.tile[0]
    columns = frequencies(w.tile) // points
    planes = End(place.address, plane_floats(w.tile), PAIR, planes_floats(w.tile))
    spectra = End(w.at(), columns * w.frequency_stride, w.frequency_stride, PAIR)
    seconds = (1.0 - PLANES_SHARE) * vectors * tile_seconds(w.tile, FILTER_RATE)
    join(step, place)
    emit_columns_to(
        step, build, Columns(points, columns, vectors, spectra, planes, LANES),
        len(build.layout.grain.ranges(columns, seconds)), Identity(edge.name, serves, Part.FILTER_TILES), seconds,
        place.region(), w.place.region(), conjugate=not exchanged,
    )  # fmt: skip


def _make_phase(made: _Made, first: Triple, channels: int, planes: Sequence[_Planes]) -> None:
    """Declare the spectra of the taps that meet a phase; idle lanes before the next phase get those of no tap.

    `planes`: those of each task, where columns are transformed by others.
    """
    _, build, edge, w, _, exchanged = made
    parameter = build.parameters[edge.name]
    taps, seconds = Taps.of(build, edge, first), tile_seconds(w.tile, FILTER_RATE)
    for run in runs(parameter, channels, exchanged=exchanged):
        least = max(1, min(TOGETHER, run.channels // FEWEST))
        for low, high in build.layout.grain.ranges(run.channels, run.channels * seconds, least):
            for part in planes or (None,):
                _transform(made, run, low, high, taps, part)
    inputs = parameter.packed_shape[1]
    idle = apart_of(build, edge) - inputs
    for block in range(w.blocks if idle and not exchanged else 0):
        own = Run(parameter.pieces[0], 0, 0, idle, 0, channels + inputs, idle, block)
        # No tap: zeros for idle lanes, so that products need not know of them.
        none = taps._replace(size=(0, 0, 0))
        _transform(made, own, 0, idle, none)


def _transform(
    made: _Made, run: Run, low: int, high: int, taps: Taps, planes: _Planes | None = None
) -> None:
    """Declare the spectra of filters low..high of a run, or some planes of them."""
    step, build, edge, w, serves, exchanged = made
    parameter, piece = build.parameters[edge.name], run.piece
    before, strides = taps.places(parameter, piece)
    # A strand for each first image and block: all tasks write the same frequencies, side by side.
    number = (run.first + low) * w.blocks + run.block
    words, cost = {}, (high - low) * tile_seconds(w.tile, FILTER_RATE)
    reads, written = [parameter.values_region()], w.place.region(strand=number)
    if planes:
        tile, count = planes_floats(w.tile), planes.high - planes.low
        words = {
            "planes": planes.place.address + 4 * number * tile,
            "planes_tile": w.blocks * tile,
            "plane0": planes.low,
            "plane1": planes.high,
        }
        # Zeros cost as much as they move.
        filled = planes.low >= taps.size[0]
        cost *= PLANES_SHARE * (ZEROS_SHARE if filled else 1.0) * count / taps.size[0]
        reads = [] if filled else reads
        written = planes.place.region(strand=number * w.tile[0] + planes.low)
    step.add(
        filter_planes if planes else filter_tiles,
        {
            **words,
            "source": parameter.values + 4 * (piece.start + run.offset + before),
            **sizes("source", strides),
            # A piece lies [tap][input][lane of outputs]: lanes of the spectra go over outputs, or
            # exchanged over inputs.
            "source_input": 1 if exchanged else piece.width,
            "source_lane": piece.width if exchanged else 1,
            "source_each": run.apart,
            "each": run.each,
            "first": low,
            "lanes": piece.inputs if exchanged else LANES,
            "inputs": high - low,
            **sizes("taps", taps.size),
            **sizes("size", w.tile),
            "target": w.at(run.first + low, run.block),
            "target_frequency": w.frequency_stride,
            "target_input": w.input_stride,
            # Correlation multiplies with conjugates, the data gradient, a convolution, does not.
            "conjugate": 0 if exchanged else 1,
            **build.worker_scratch(scratch_floats(w.tile)),
        },
        what=Identity(edge.name, serves, Part.FILTER_TILES),
        cost=cost,
        divides=True,
        reads=reads,
        writes=[written],
    )


def _filters_of(build: Build, edge: Edge, *, backward: bool) -> Filters:
    """Return room for the spectra of an edge's filters: kept, or shared with others.

    Shared ones that two passes need wait for the second one up to FILTERS_KEPT_BYTES.
    """
    outputs, inputs = images_of(build, edge)
    tile = tile_of(build, edge, against(edge) if backward else along(edge))
    exchanged = _exchanges(build, edge, backward=backward)
    # Products sum over terms; exchanged, that is over outputs.
    terms, images = (outputs, inputs) if exchanged else (inputs, outputs)
    w = Filters(tile, terms, -(-images // LANES))
    passing = build.layout.filters_pass
    # A second name is a second buffer: what is too large to wait for the data gradient is made
    # again there.
    again = exchanged or (passing and backward and 4 * w.floats > FILTERS_KEPT_BYTES)
    name = Name(FILTER_TILES, edge.name, (again,))
    reserve = build.shared if passing else build.kept
    w.place = reserve(name, w.floats)
    return w
