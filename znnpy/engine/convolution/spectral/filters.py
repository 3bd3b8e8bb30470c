"""Tasks that transform filters to spectra, and filter gradients back from their spectra."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from operator import mul
from typing import NamedTuple

from znnpy_kernels.fft.codelets import FEW
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.spectral.filter_planes import (
    filter_gradient_planes,
    filter_planes,
    plane_floats,
    planes_floats,
)
from znnpy_kernels.spectral.filter_tiles import filter_gradient_tiles, filter_tiles
from znnpy_kernels.spectral.tile_spectra import scratch_floats

from znnpy.engine.convolution.spectral.buffers import (
    FILTER_TILES,
    Filters,
    against,
    along,
    is_few,
    phases_of_edge,
    tile_of,
)
from znnpy.engine.convolution.spectral.column_tasks import (
    Columns,
    End,
    emit_columns_from,
    emit_columns_to,
)
from znnpy.engine.convolution.spectral.tile_arguments import sizes
from znnpy.engine.convolution.tiles import PAIR
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.parameters import Parameter, Piece
from znnpy.engine.memory.regions import Buffer, Name, Use
from znnpy.engine.tasks.buffer_sharing import join
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import PASS_OF, Identity, Part, Pass
from znnpy.geometry import voxels
from znnpy.network.types import Edge, Triple
from znnpy.plan import PassName
from znnpy.plan.partition import evenly
from znnpy.plan.polyphase import taps_from
from znnpy.plan.tiles import (
    FILTER_RATE,
    FILTERS_KEPT_BYTES,
    PLANES_SHARE,
    frequencies,
    tile_seconds,
)

FILTER_GRADIENT_TILES = Use("spectra of filter gradients", "filter spectra")
FILTER_PLANES = Use("planes of filters", "filter spectra")

# Vectors side by side that a task writes at each frequency: prefetched neighbours are mostly its own. Fewer: a task
# prefetches lines that another one is about to write. Layers of few channels have no more than FEWEST such tasks.
TOGETHER, FEWEST = 8, 4
# Of what a plane of taps takes, for one without.
ZEROS_SHARE = 0.25


class _Taps(NamedTuple):
    """Taps of filters that meet a phase: the first one, the step from one to the next, how many."""

    first: Triple
    step: Triple
    size: Triple

    @classmethod
    def of(cls, build: Build, edge: Edge, first: Triple) -> _Taps:
        """Return the taps of a phase from its first one on."""
        # Every `step`-th tap meets the same phase.
        step = phases_of_edge(build, edge).step
        return cls(first, step, taps_from(edge.size, step, first))

    def places(self, parameter: Parameter, piece: Piece) -> tuple[int, Triple]:
        """Return the floats to the first tap, and between taps that follow each other along z, y, x."""
        strides = parameter.tap_strides(piece.first_output, piece.first_input)
        before = sum(map(mul, self.first, strides))
        z, y, x = map(mul, self.step, strides)
        return before, (z, y, x)


class _Planes(NamedTuple):
    """Some planes of tiles of filters that one task transforms, into a buffer of all of them; columns come later."""

    place: Buffer
    low: int
    high: int


class _Run(NamedTuple):
    """Filters in a row: through pieces of one form, `apart` floats from one to the next, `each` in a piece.

    `piece`: the first one, with its `number`; `offset`: floats into it. `channels` filters with `block`, from image
    `first` on.
    """

    piece: Piece
    number: int
    offset: int
    each: int
    apart: int
    first: int
    channels: int
    block: int


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
    parts, planes = _plane_parts(build, edge, w), []
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
    for first, images in _phases(build, edge):
        _make_phase(step, build, edge, w, serves, first, images, planes, exchanged=exchanged)
    if planes:
        what = Identity(edge.name, serves, Part.FILTER_TILES)
        _emit_columns_to(step, build, w, planes[0].place, what, conjugate=not exchanged)
    join(step, w.place)


def _emit_columns_to(
    step: Step, build: Build, w: Filters, place: Buffer, what: Identity, *, conjugate: bool
) -> None:
    """Declare the transforms of all columns along z, from planes to spectra."""
    vectors, points = w.inputs * w.blocks, w.tile[0]
    columns = frequencies(w.tile) // points
    planes = End(place.address, plane_floats(w.tile), PAIR, planes_floats(w.tile))
    spectra = End(w.at(), columns * w.frequency_stride, w.frequency_stride, PAIR)
    seconds = (1.0 - PLANES_SHARE) * vectors * tile_seconds(w.tile, FILTER_RATE)
    join(step, place)
    emit_columns_to(
        step, build, Columns(points, columns, vectors, spectra, planes, LANES),
        len(build.layout.grain.ranges(columns, seconds)), what, seconds, place.region(),
        w.place.region(), conjugate=conjugate,
    )  # fmt: skip


def _phases(build: Build, edge: Edge) -> list[tuple[Triple, int]]:
    """Return the first tap of each phase, and how many images of other phases lie before its own."""
    apart = _apart(build, edge)
    return [
        (first, number * apart) for number, first in enumerate(phases_of_edge(build, edge).firsts())
    ]


def _apart(build: Build, edge: Edge) -> int:
    """Return the images from phase to phase: whole blocks where each phase has lanes of its own."""
    inputs = build.parameters[edge.name].packed_shape[1]
    blocks = phases_of_edge(build, edge).split and not is_few(build, edge)
    return -(-inputs // LANES) * LANES if blocks else inputs


def _make_phase(
    step: Step,
    build: Build,
    edge: Edge,
    w: Filters,
    serves: Pass,
    first: Triple,
    channels: int,
    planes: Sequence[_Planes],
    *,
    exchanged: bool,
) -> None:
    """Declare the spectra of the taps that meet a phase; idle lanes before the next phase get those of no tap.

    `planes`: those of each task, where columns are transformed by others.
    """
    parameter = build.parameters[edge.name]
    taps, seconds = _Taps.of(build, edge, first), tile_seconds(w.tile, FILTER_RATE)
    for run in _runs(parameter, channels, exchanged=exchanged):
        least = max(1, min(TOGETHER, run.channels // FEWEST))
        for low, high in build.layout.grain.ranges(run.channels, run.channels * seconds, least):
            for part in planes or (None,):
                _transform(
                    step, build, edge, w, serves, run, low, high, taps, part, exchanged=exchanged
                )
    inputs = parameter.packed_shape[1]
    idle = _apart(build, edge) - inputs
    for block in range(w.blocks if idle and not exchanged else 0):
        own = _Run(parameter.pieces[0], 0, 0, idle, 0, channels + inputs, idle, block)
        # No tap: zeros for idle lanes, so that products need not know of them.
        none = taps._replace(size=(0, 0, 0))
        _transform(step, build, edge, w, serves, own, 0, idle, none, None, exchanged=False)


def _runs(parameter: Parameter, before: int, *, exchanged: bool) -> Iterator[_Run]:
    """Yield the runs of filters; `before`: images of other phases that lie before its inputs.

    They go along inputs, with a run for each vector of outputs; exchanged, along outputs, which lie side by side in a
    piece, with a run for each block of inputs.
    """
    outputs = parameter.packed_shape[0]
    for row in _rows(parameter, exchanged=exchanged):
        index, piece = row[0]
        apart = row[1][1].start - piece.start if len(row) > 1 else 0
        if exchanged:
            last = row[-1][1]
            images = min(last.first_output + last.width, outputs) - piece.first_output
            block = (before + piece.first_input) // LANES
            yield _Run(piece, index, 0, piece.width, apart, piece.first_output, images, block)
            continue
        first, images = before + piece.first_input, piece.inputs * len(row)
        for vector in range(piece.width // LANES):
            block = piece.first_output // LANES + vector
            yield _Run(piece, index, vector * LANES, piece.inputs, apart, first, images, block)


def _rows(parameter: Parameter, *, exchanged: bool) -> Iterable[list[tuple[int, Piece]]]:
    """Return the numbered pieces of one form between the same outputs; exchanged, the same inputs.

    They are equally far apart: a piece of another form can only be the last one of each row of pieces.
    """
    rows: dict[tuple[int, int, int], list[tuple[int, Piece]]] = defaultdict(list)
    for index, piece in enumerate(parameter.pieces):
        same = piece.first_input if exchanged else piece.first_output
        rows[same, piece.width, piece.inputs].append((index, piece))
    return rows.values()


def _transform(
    step: Step,
    build: Build,
    edge: Edge,
    w: Filters,
    serves: Pass,
    run: _Run,
    low: int,
    high: int,
    taps: _Taps,
    planes: _Planes | None,
    *,
    exchanged: bool,
) -> None:
    """Declare the spectra of filters low..high of a run, or some planes of them."""
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
    outputs, inputs = _images(build, edge)
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


def _images(build: Build, edge: Edge) -> tuple[int, int]:
    """Return the number of outputs, and of inputs of all phases."""
    outputs = build.parameters[edge.name].packed_shape[0]
    return outputs, phases_of_edge(build, edge).count * _apart(build, edge)


def gradients_of(build: Build, edge: Edge) -> Filters:
    """Return room for the spectra of an edge's filter gradients."""
    outputs, inputs = _images(build, edge)
    w = Filters(tile_of(build, edge, "weight"), inputs, -(-outputs // LANES))
    w.place = build.shared(Name(FILTER_GRADIENT_TILES, edge.name), w.floats)
    return w


def emit_gradients(step: Step, build: Build, edge: Edge, w: Filters) -> None:
    """Declare the transforms back of the sums over tiles, into the packed gradient."""
    # A gate between all products that add to the sums and all transforms that read them.
    join(step, w.place)
    parts = _plane_parts(build, edge, w)
    if parts > 1:
        _emit_columns(step, build, edge, w)
    for number, (first, images) in enumerate(_phases(build, edge)):
        taps = _Taps.of(build, edge, first)
        _emit_phase(step, build, edge, w, taps, number, images, parts)


def _plane_parts(build: Build, edge: Edge, w: Filters) -> int:
    """Return into how many parts planes of taps are cut, where tiles of filters are fewer than the workers; else 1."""
    # Of few taps other code transforms columns, with other bits; tiles of one plane have theirs along y.
    if phases_of_edge(build, edge).split or w.tile[0] == 1 or max(edge.size[:2]) <= FEW:
        return 1
    vectors = w.inputs * w.blocks
    seconds = PLANES_SHARE * vectors * tile_seconds(w.tile, FILTER_RATE)
    return min(edge.size[0], build.layout.grain.rounds(seconds, vectors))


def _emit_columns(step: Step, build: Build, edge: Edge, w: Filters) -> None:
    """Declare the transforms of all columns back along z, in place."""
    vectors, points = w.inputs * w.blocks, w.tile[0]
    columns = frequencies(w.tile) // points
    end = End(w.at(), columns * w.frequency_stride, w.frequency_stride, PAIR)
    emit_columns_from(
        step, build, Columns(points, columns, vectors, end, end, LANES),
        Identity(edge.name, Pass.WEIGHT, Part.INVERSE),
        (1.0 - PLANES_SHARE) * vectors * tile_seconds(w.tile, FILTER_RATE),
        w.place.region(), w.place.region(),
    )  # fmt: skip
    join(step, w.place)


def _emit_phase(
    step: Step,
    build: Build,
    edge: Edge,
    w: Filters,
    taps: _Taps,
    number: int,
    channels: int,
    parts: int,
) -> None:
    """Declare the transforms back to the taps of a phase; `parts` of their planes, after columns, or whole tiles."""
    parameter, planes = build.parameters[edge.name], evenly(taps.size[0], parts)
    seconds = tile_seconds(w.tile, FILTER_RATE)
    for run in _runs(parameter, channels, exchanged=False):
        before, strides = taps.places(parameter, run.piece)
        # Of one panel and phase: tasks of another write other taps or lanes of the same pieces.
        strand = number * w.blocks + run.block
        cuts = build.layout.grain.ranges(run.channels, run.channels * seconds)
        for (low, high), (plane0, plane1) in product(cuts, planes):
            step.add(
                filter_gradient_planes if parts > 1 else filter_gradient_tiles,
                {
                    **({"plane0": plane0, "plane1": plane1} if parts > 1 else {}),
                    "source": w.at(run.first + low, run.block),
                    "source_frequency": w.frequency_stride,
                    "source_input": w.input_stride,
                    "inputs": high - low,
                    **sizes("taps", taps.size),
                    **sizes("size", w.tile),
                    "target": parameter.gradient + 4 * (run.piece.start + before + run.offset),
                    "target_input": run.piece.width,
                    "target_each": run.apart,
                    "each": run.each,
                    "first": low,
                    **sizes("target", strides),
                    "accumulate": 0,
                    # Transforms do not normalise; the inverse of n points does it once.
                    "scale": 1.0 / voxels(w.tile),
                    **build.worker_scratch(scratch_floats(w.tile)),
                },
                what=Identity(edge.name, Pass.WEIGHT, Part.INVERSE),
                cost=(high - low) * seconds
                if parts == 1
                else PLANES_SHARE * (high - low) * seconds * (plane1 - plane0) / taps.size[0],
                divides=True,
                reads=[w.place.region()],
                writes=[
                    parameter.gradient_region(
                        run.number + low // run.each,
                        run.number + -(-high // run.each),
                        (strand * w.inputs + run.first + low) * len(planes) + plane0,
                    )
                ],
            )
