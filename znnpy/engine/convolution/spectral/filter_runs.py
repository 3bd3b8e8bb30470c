"""Which filters are transformed in a row, as they lie in pieces of parameters, and which of their taps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from operator import mul
from typing import NamedTuple

from znnpy_kernels.fft.codelets import FEW
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.convolution.spectral.buffers import Filters, is_few, phases_of_edge
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.parameters import Parameter, Piece
from znnpy.network.types import Edge, Triple
from znnpy.plan.polyphase import taps_from
from znnpy.plan.tiles import FILTER_RATE, PLANES_SHARE, tile_seconds


class Taps(NamedTuple):
    """Taps of filters that meet a phase: the first one, the step from one to the next, how many."""

    first: Triple
    step: Triple
    size: Triple

    @classmethod
    def of(cls, build: Build, edge: Edge, first: Triple) -> Taps:
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


class Run(NamedTuple):
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


def phases(build: Build, edge: Edge) -> list[tuple[Triple, int]]:
    """Return the first tap of each phase, and how many images of other phases lie before its own."""
    apart = apart_of(build, edge)
    return [
        (first, number * apart) for number, first in enumerate(phases_of_edge(build, edge).firsts())
    ]


def apart_of(build: Build, edge: Edge) -> int:
    """Return the images from phase to phase: whole blocks where each phase has lanes of its own."""
    inputs = build.parameters[edge.name].packed_shape[1]
    blocks = phases_of_edge(build, edge).split and not is_few(build, edge)
    return -(-inputs // LANES) * LANES if blocks else inputs


def images_of(build: Build, edge: Edge) -> tuple[int, int]:
    """Return the number of outputs, and of inputs of all phases."""
    outputs = build.parameters[edge.name].packed_shape[0]
    return outputs, phases_of_edge(build, edge).count * apart_of(build, edge)


def plane_parts(build: Build, edge: Edge, w: Filters) -> int:
    """Return into how many parts planes of taps are cut, where tiles of filters are fewer than the workers; else 1."""
    # Of few taps other code transforms columns, with other bits; tiles of one plane have theirs along y.
    if phases_of_edge(build, edge).split or w.tile[0] == 1 or max(edge.size[:2]) <= FEW:
        return 1
    vectors = w.inputs * w.blocks
    seconds = PLANES_SHARE * vectors * tile_seconds(w.tile, FILTER_RATE)
    return min(edge.size[0], build.layout.grain.rounds(seconds, vectors))


def runs(parameter: Parameter, before: int, *, exchanged: bool) -> Iterator[Run]:
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
            yield Run(piece, index, 0, piece.width, apart, piece.first_output, images, block)
            continue
        first, images = before + piece.first_input, piece.inputs * len(row)
        for vector in range(piece.width // LANES):
            block = piece.first_output // LANES + vector
            yield Run(piece, index, vector * LANES, piece.inputs, apart, first, images, block)


def _rows(parameter: Parameter, *, exchanged: bool) -> Iterable[list[tuple[int, Piece]]]:
    """Return the numbered pieces of one form between the same outputs; exchanged, the same inputs.

    They are equally far apart: a piece of another form can only be the last one of each row of pieces.
    """
    rows: dict[tuple[int, int, int], list[tuple[int, Piece]]] = defaultdict(list)
    for index, piece in enumerate(parameter.pieces):
        same = piece.first_input if exchanged else piece.first_output
        rows[same, piece.width, piece.inputs].append((index, piece))
    return rows.values()
