"""Tasks that transform filter gradients back from their spectra."""

from __future__ import annotations

from itertools import product

from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.spectral.filter_planes import filter_gradient_planes
from znnpy_kernels.spectral.filter_tiles import filter_gradient_tiles
from znnpy_kernels.spectral.tile_spectra import scratch_floats

from znnpy.engine.convolution.spectral.buffers import Filters, tile_of
from znnpy.engine.convolution.spectral.column_tasks import Columns, End, emit_columns_from
from znnpy.engine.convolution.spectral.filter_runs import (
    Taps,
    images_of,
    phases,
    plane_parts,
    runs,
)
from znnpy.engine.convolution.spectral.tile_arguments import sizes
from znnpy.engine.convolution.tiles import PAIR
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.regions import Name, Use
from znnpy.engine.tasks.buffer_sharing import join
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.geometry import voxels
from znnpy.network.types import Edge
from znnpy.plan.partition import evenly
from znnpy.plan.tiles import FILTER_RATE, PLANES_SHARE, frequencies, tile_seconds

FILTER_GRADIENT_TILES = Use("spectra of filter gradients", "filter spectra")


def gradients_of(build: Build, edge: Edge) -> Filters:
    """Return room for the spectra of an edge's filter gradients."""
    outputs, inputs = images_of(build, edge)
    w = Filters(tile_of(build, edge, "weight"), inputs, -(-outputs // LANES))
    w.place = build.shared(Name(FILTER_GRADIENT_TILES, edge.name), w.floats)
    return w


def emit_gradients(step: Step, build: Build, edge: Edge, w: Filters) -> None:
    """Declare the transforms back of the sums over tiles, into the packed gradient."""
    # A gate between all products that add to the sums and all transforms that read them.
    join(step, w.place)
    parts = plane_parts(build, edge, w)
    if parts > 1:
        _emit_columns(step, build, edge, w)
    for number, (first, images) in enumerate(phases(build, edge)):
        taps = Taps.of(build, edge, first)
        _emit_phase(step, build, edge, w, taps, number, images, parts)


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
    taps: Taps,
    number: int,
    channels: int,
    parts: int,
) -> None:
    """Declare the transforms back to the taps of a phase; `parts` of their planes, after columns, or whole tiles."""
    parameter, planes = build.parameters[edge.name], evenly(taps.size[0], parts)
    seconds = tile_seconds(w.tile, FILTER_RATE)
    for run in runs(parameter, channels, exchanged=False):
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
