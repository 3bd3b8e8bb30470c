"""Spectra of filters, and filter gradients back from their spectra."""

from __future__ import annotations

from typing import NamedTuple

from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.spectral.filter_tiles import filter_gradient_tiles, filter_tiles
from znnpy_kernels.spectral.tile_spectra import scratch_floats

from znnpy.engine.convolution.spectral.buffers import FILTER_TILES, Filters, tile_of
from znnpy.engine.convolution.spectral.words import sizes
from znnpy.engine.memory.build import Build
from znnpy.engine.memory.parameters import Piece
from znnpy.engine.memory.regions import Name, Use
from znnpy.engine.tasks.identity import Identity, Part, Pass
from znnpy.engine.tasks.sharing import join
from znnpy.engine.tasks.step import Step
from znnpy.geometry import voxels
from znnpy.network.types import Edge
from znnpy.plan import ranges
from znnpy.plan.tiles import FILTER_RATE, FILTERS_KEPT_BYTES, tile_seconds

FILTER_GRADIENT_TILES = Use("spectra of filter gradients", "filter spectra")

# Vectors side by side that a task writes at each frequency: prefetched neighbours are mostly its own.
TOGETHER = 8


class _Run(NamedTuple):
    """Filters that lie in a row within a piece: `offset` floats into it, for images from `first` on."""

    offset: int
    first: int
    images: int
    block: int


def derive(step: Step, build: Build, edge: Edge) -> None:
    """Spectra of all filters, where they are kept."""
    if build.layout.filters_pass:
        return
    layer = build.layout.plan.layers[edge.name]
    if layer.forward == "spectral":
        _make(step, build, edge, backward=False)
    back = layer.gradient == "spectral" and edge.name in build.images.backward
    if back and not shares_filters(build, edge):
        _make(step, build, edge, backward=True)


def filters_for(step: Step, build: Build, edge: Edge, *, backward: bool) -> Filters:
    """Spectra of all filters for a pass, made now unless they are kept or the forward pass left them."""
    w = _filters_of(build, edge, backward=backward)
    if build.layout.filters_pass and step.once(w.place):
        _make(step, build, edge, backward=backward)
    return w


def shares_filters(build: Build, edge: Edge) -> bool:
    """Whether the data gradient multiplies with the same spectra of filters as the forward pass."""
    layer = build.layout.plan.layers[edge.name]
    return layer.method("forward") == layer.method("gradient")


def _make(step: Step, build: Build, edge: Edge, *, backward: bool) -> None:
    """Spectra of all filters for a pass; the data gradient's own have inputs and outputs exchanged, not conjugate."""
    w, parameter = _filters_of(build, edge, backward=backward), build.parameters[edge.name]
    serves = Pass.BACKWARD if backward else Pass.FORWARD
    backward = backward and not shares_filters(build, edge)
    seconds = tile_seconds(w.tile, FILTER_RATE)
    for piece in parameter.pieces:
        for run in _runs(piece, parameter.shape[0], backward=backward):
            for low, high in ranges(run.images, run.images * seconds, TOGETHER):
                own = _Run(run.offset, run.first + low, high - low, run.block)
                source = parameter.values + 4 * (piece.start + run.offset)
                source += 4 * low * (1 if backward else piece.width)
                _transform(step, build, edge, w, serves, piece, own, source, backward=backward)
    join(step, w.place)


def _runs(piece: Piece, outputs: int, *, backward: bool) -> list[_Run]:
    if backward:
        images = min(piece.width, outputs - piece.first_output)
        return [_Run(0, piece.first_output, images, piece.first_input // LANES)]
    return [
        _Run(v * LANES, piece.first_input, piece.inputs, piece.first_output // LANES + v)
        for v in range(piece.width // LANES)
    ]


def _transform(
    step: Step,
    build: Build,
    edge: Edge,
    w: Filters,
    serves: Pass,
    piece: Piece,
    run: _Run,
    source: int,
    *,
    backward: bool,
) -> None:
    parameter = build.parameters[edge.name]
    source_z, source_y, source_x = parameter.tap_strides(piece.first_output, piece.first_input)
    step.add(
        filter_tiles,
        {
            "source": source,
            "source_z": source_z,
            "source_y": source_y,
            "source_x": source_x,
            "source_input": 1 if backward else piece.width,
            "source_lane": piece.width if backward else 1,
            "lanes": piece.inputs if backward else LANES,
            "inputs": run.images,
            **sizes("taps", edge.size),
            **sizes("size", w.tile),
            "target": w.at(run.first, run.block),
            "target_frequency": w.frequency_stride,
            "target_input": w.input_stride,
            "conjugate": 0 if backward else 1,
            **build.worker_scratch(scratch_floats(w.tile)),
        },
        what=Identity(edge.name, serves, Part.FILTER_TILES),
        cost=run.images * tile_seconds(w.tile, FILTER_RATE),
        reads=[parameter.values_region()],
        writes=[w.place.region(strand=run.first * w.blocks + run.block)],
    )


def _filters_of(build: Build, edge: Edge, *, backward: bool) -> Filters:
    """Room for the spectra of an edge's filters: kept, or shared with others.

    Shared ones that two passes need wait for the second one up to FILTERS_KEPT_BYTES.
    """
    outputs, inputs = build.parameters[edge.name].shape[:2]
    tile = tile_of(build, edge, "gradient" if backward else "forward")
    exchanged = backward and not shares_filters(build, edge)
    terms, images = (outputs, inputs) if exchanged else (inputs, outputs)
    w = Filters(tile, terms, -(-images // LANES))
    passing = build.layout.filters_pass
    again = exchanged or (passing and backward and 4 * w.floats > FILTERS_KEPT_BYTES)
    name = Name(FILTER_TILES, edge.name, (again,))
    reserve = build.shared if passing else build.kept
    w.place = reserve(name, w.floats)
    return w


def gradients_of(build: Build, edge: Edge) -> Filters:
    """Room for the spectra of an edge's filter gradients."""
    outputs, inputs = build.parameters[edge.name].shape[:2]
    w = Filters(tile_of(build, edge, "weight"), inputs, -(-outputs // LANES))
    w.place = build.shared(Name(FILTER_GRADIENT_TILES, edge.name), w.floats)
    return w


def emit_gradients(step: Step, build: Build, edge: Edge, w: Filters) -> None:
    """Transforms back of the sums over tiles, into the packed gradient."""
    parameter = build.parameters[edge.name]
    seconds = tile_seconds(w.tile, FILTER_RATE)
    join(step, w.place)
    for index, piece in enumerate(parameter.pieces):
        target_z, target_y, target_x = parameter.tap_strides(piece.first_output, piece.first_input)
        for vector in range(piece.width // LANES):
            block = piece.first_output // LANES + vector
            for low, high in ranges(piece.inputs, piece.inputs * seconds):
                step.add(
                    filter_gradient_tiles,
                    {
                        "source": w.at(piece.first_input + low, block),
                        "source_frequency": w.frequency_stride,
                        "source_input": w.input_stride,
                        "inputs": high - low,
                        **sizes("taps", edge.size),
                        **sizes("size", w.tile),
                        "target": parameter.gradient
                        + 4 * (piece.start + vector * LANES + low * piece.width),
                        "target_input": piece.width,
                        "target_z": target_z,
                        "target_y": target_y,
                        "target_x": target_x,
                        "accumulate": 0,
                        "scale": 1.0 / voxels(w.tile),
                        **build.worker_scratch(scratch_floats(w.tile)),
                    },
                    what=Identity(edge.name, Pass.WEIGHT, Part.INVERSE),
                    cost=(high - low) * seconds,
                    reads=[w.place.region()],
                    writes=[
                        parameter.gradient_region(index, index + 1, vector * piece.inputs + low)
                    ],
                )
