"""Tiled FFT convolution of sources with few channels: products of tiles whose lanes hold tiles of one channel.

What they are multiplied with comes in small groups.
"""

from __future__ import annotations

from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.spectral.few_columns import RUNS, few_gradients, few_products
from znnpy_kernels.spectral.gemm import spectral_gradients, spectral_products

from znnpy.engine.convolution.spectral.buffers import Filters
from znnpy.engine.convolution.spectral.columns import column_words, line_seconds
from znnpy.engine.convolution.spectral.few_source import FewSpectra, Run
from znnpy.engine.convolution.spectral.products import left_out, left_out_of_filters
from znnpy.engine.convolution.tiles import PAIR, PlaneSpectra, TileSpectra
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.regions import Region
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network.types import Edge
from znnpy.plan.tiles import FEW_RATE

# Larger: a shorter chain of additions, more tasks to dispatch.
SHORTER = 4  # tasks than others


def emit_few_products(
    step: Step, build: Build, edge: Edge, x: FewSpectra, w: Filters, y: TileSpectra, group: int
) -> None:
    """Declare the spectra of the sums over images, of one group of tiles."""
    count, number = x.tiling.frequencies, 0
    for run in x.runs(y, group):
        seconds = _seconds(run, w, count)
        for low, high in build.layout.grain.ranges(count, seconds):
            step.add(
                spectral_products,
                _words(x, run, w, y, group, low, high) | left_out(y, low),
                what=Identity(edge.name, Pass.FORWARD, Part.PRODUCTS),
                cost=seconds * (high - low) / count,
                divides=True,
                reads=[*x.regions(run), w.place.region()],
                writes=[y.places[group].region(strand=number)],
            )
            # Runs write the same group side by side: each task has a strand of its own.
            number += 1


def emit_few_weight_products(
    step: Step, build: Build, edge: Edge, x: FewSpectra, w: Filters, dy: TileSpectra, group: int
) -> None:
    """Declare the tasks that add one group of tiles to the spectra of filter gradients."""
    count = x.tiling.frequencies
    # All runs follow each other in each range: the narrower it is, the shorter is that chain.
    cuts = build.layout.grain.ranges(count, SHORTER * _seconds(x.runs(dy, 0)[0], w, count))
    for number, run in enumerate(x.runs(dy, group)):
        seconds = _seconds(run, w, count)
        for low, high in cuts:
            sums = w.place.region(low, high)
            step.add(
                spectral_gradients,
                {
                    **_words(x, run, w, dy, group, low, high),
                    **left_out_of_filters(x.tiling.tile, low),
                    "accumulate": int(group + number > 0),
                },
                what=Identity(edge.name, Pass.WEIGHT, Part.PRODUCTS),
                cost=seconds * (high - low) / count,
                divides=True,
                reads=[
                    *x.regions(run),
                    dy.places[group].region(),
                    *([sums] if group + number else ()),
                ],
                writes=[sums],
            )


def emit_few_column_products(
    step: Step, build: Build, edge: Edge, x: FewSpectra, w: Filters, y: PlaneSpectra, group: int
) -> None:
    """Declare the spectra of the sums over images of one group of tiles, column by column."""
    words, seconds = _column_words(build, x, w, y, group), _column_seconds(x, w, y, group)
    for low, high in build.layout.grain.ranges(y.columns, seconds):
        step.add(
            few_products,
            words | {"w": w.at(), "column0": low, "column1": high},
            what=Identity(edge.name, Pass.FORWARD, Part.PRODUCTS),
            cost=seconds * (high - low) / y.columns,
            divides=True,
            reads=[*_blocks(x, y, group), w.place.region()],
            writes=[y.places[group].region(low, high)],
        )


def emit_few_column_gradients(
    step: Step, build: Build, edge: Edge, x: FewSpectra, w: Filters, dy: PlaneSpectra, group: int
) -> None:
    """Declare the tasks that add one group of tiles to the spectra of filter gradients, column by column."""
    words = _column_words(build, x, w, dy, group)
    words |= {"w": 0, "gradient": w.at(), "accumulate": int(group > 0)}
    seconds = _column_seconds(x, w, dy, group)
    for low, high in build.layout.grain.ranges(dy.columns, _column_seconds(x, w, dy, 0)):
        sums = w.place.region(low, high)
        step.add(
            few_gradients,
            words | {"column0": low, "column1": high},
            what=Identity(edge.name, Pass.WEIGHT, Part.PRODUCTS),
            cost=seconds * (high - low) / dy.columns,
            divides=True,
            reads=[
                *_blocks(x, dy, group),
                dy.places[group].region(low, high),
                *([sums] if group else ()),
            ],
            writes=[sums],
        )


def _column_words(
    build: Build, x: FewSpectra, w: Filters, y: PlaneSpectra, group: int
) -> dict[str, int]:
    runs = x.runs(y, group)
    places = [
        ((x.at(run.grid, run.block, run.lane) - x.place.address) // 4, run.tile, run.tiles)
        for run in runs
    ]
    # The kernel has RUNS sets of words; `runs` says how many count.
    places += [(0, 0, 0)] * (RUNS - len(runs))
    words = column_words(build, x.channels, w, y, group) | {"x": x.place.address, "runs": len(runs)}
    for number, (lane, first, tiles) in enumerate(places):
        words |= {f"lane{number}": lane, f"first{number}": first, f"tiles{number}": tiles}
    return words


def _blocks(x: FewSpectra, y: PlaneSpectra, group: int) -> list[Region]:
    return [x.region(run.grid, run.block) for run in x.runs(y, group)]


def _column_seconds(x: FewSpectra, w: Filters, y: PlaneSpectra, group: int) -> float:
    products = sum(_seconds(run, w, x.tiling.frequencies) for run in x.runs(y, group))
    return line_seconds(y, group) + products


def _words(
    x: FewSpectra, run: Run, w: Filters, y: TileSpectra, group: int, low: int, high: int
) -> dict[str, int]:
    return {
        "x": x.at(run.grid, run.block, run.lane, low),
        "x_frequency": x.frequency_stride,
        # From tile to tile: a block further, or some lanes further.
        "x_tile": x.block_stride if run.across else x.channels,
        "x_block": PAIR,
        "w": w.at(frequency=low),
        "w_frequency": w.frequency_stride,
        "w_input": w.input_stride,
        "w_block": PAIR,
        "y": y.at(group, run.tile, frequency=low),
        "y_frequency": y.frequency_stride,
        "y_tile": y.tile_stride * (x.tiles if run.across else 1),
        "y_block": y.block_stride,
        "frequencies": high - low,
        "tiles": run.tiles,
        "inputs": x.channels,
        "blocks": y.blocks,
        "x_parts": LANES,
        "y_parts": y.imaginary,
        "lanes": y.last_lanes,
    }


def _seconds(run: Run, w: Filters, frequencies: int) -> float:
    """Return the seconds of a run's products, bound by the spectra of outputs."""
    # The tiles of outputs, and the filters once.
    return 4.0 * PAIR * w.blocks * frequencies * (run.tiles + 1) / FEW_RATE
