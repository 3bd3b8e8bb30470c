"""Tasks of products of tiles that are transformed along their planes alone, column by column."""

from __future__ import annotations

from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.spectral.packed_columns import column_floats, packed_gradients, packed_products

from znnpy.engine.convolution.spectral.buffers import Filters
from znnpy.engine.convolution.spectral.filters import shares_filters
from znnpy.engine.convolution.tiles import PAIR, PlaneSpectra
from znnpy.engine.memory.allocation import Build
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network.types import Edge
from znnpy.plan.tiles import PACKING, PLANES_SHARE, PRODUCT_RATE, tile_seconds


def emit_column_products(
    step: Step, build: Build, edge: Edge, x: PlaneSpectra, w: Filters, y: PlaneSpectra, group: int,
    serves: Pass,
) -> None:  # fmt: skip
    """Declare the sums over images of one group of tiles; y may lie where x does."""
    back = serves is Pass.BACKWARD
    # The forward pass's spectra serve the data gradient, read with inputs and outputs exchanged.
    exchanged = back and shares_filters(build, edge)
    words = _words(build, x, w, y, group, back=back) | {"w": w.at(), "exchanged": int(exchanged)}
    seconds = line_seconds(x, group) + line_seconds(y, group) + _product_seconds(x, y, group)
    for low, high in build.layout.grain.ranges(x.columns, seconds):
        step.add(
            packed_products,
            words | {"column0": low, "column1": high},
            what=Identity(edge.name, serves, Part.PRODUCTS),
            cost=seconds * (high - low) / x.columns,
            # Regions count columns here: a task reads and writes the same ones.
            divides=True,
            reads=[x.places[group].region(low, high), w.place.region()],
            writes=[y.places[group].region(low, high)],
        )


def emit_column_gradients(
    step: Step, build: Build, edge: Edge, x: PlaneSpectra, w: Filters, dy: PlaneSpectra,
    filters: Filters | None, group: int,
) -> None:  # fmt: skip
    """Declare the tasks that add one group of tiles to the spectra of filter gradients.

    With the forward pass's `filters` the source's gradient takes the place of the target's.
    """
    words = _words(build, x, w, dy, group, back=False) | {
        "w": filters.at() if filters else 0,
        "target": dy.at(group) if filters else 0,
        "gradient": w.at(),
        # The first group stores: nothing has to be cleared before.
        "accumulate": int(group > 0),
    }

    def seconds(number: int) -> float:
        lines = line_seconds(x, number) * (2 if filters else 1) + line_seconds(dy, number)
        return lines + _product_seconds(x, dy, number) * (2 if filters else 1)

    # Cut as the first group is: groups follow each other range by range, and the last one may be
    # smaller.
    for low, high in build.layout.grain.ranges(x.columns, seconds(0)):
        own, sums = dy.places[group].region(low, high), w.place.region(low, high)
        step.add(
            packed_gradients,
            words | {"column0": low, "column1": high},
            what=Identity(edge.name, Pass.WEIGHT, Part.PRODUCTS),
            cost=seconds(group) * (high - low) / x.columns,
            divides=True,
            reads=[
                x.places[group].region(),
                own,
                *([filters.place.region()] if filters else ()),
                *([sums] if group else ()),
            ],
            writes=[sums, *([own] if filters else ())],
        )


def _words(
    build: Build, x: PlaneSpectra, w: Filters, y: PlaneSpectra, group: int, *, back: bool
) -> dict[str, int]:
    """Return the words of both kernels; forward all points of x count, `back` all of y."""
    new = x.tiling.new[x.axis]
    return column_words(build, x.channels, w, y, group) | {
        "x": x.at(group),
        "x_points": new if back else x.points,
        "y_points": x.points if back else new,
    }


def column_words(
    build: Build, channels: int, w: Filters, y: PlaneSpectra, group: int
) -> dict[str, int]:
    """Return the words of all kernels for a group of tiles of y and of so many other images."""
    count = y.count(group)
    return {
        "x_images": channels,
        "x_points": 0,
        "y": y.at(group),
        "y_images": y.channels,
        "y_points": y.tiling.new[y.axis],
        "target": 0,
        "plane": y.point_stride,
        "vector": y.vector_stride,
        "points": y.points,
        "columns": y.columns,
        "tiles": count,
        "w_frequency": w.frequency_stride,
        "w_input": w.input_stride,
        "w_block": PAIR,
        "exchanged": 0,
        "gradient": 0,
        "accumulate": 0,
        **build.worker_scratch(column_floats(y.points, count, channels, y.channels)),
    }


def line_seconds(spectra: PlaneSpectra, group: int) -> float:
    tile = tile_seconds(spectra.tiling.tile)
    # The lines that transforms of planes have left to the products.
    return (1.0 - PLANES_SHARE) * PACKING * spectra.vectors(group) * tile


def _product_seconds(x: PlaneSpectra, y: PlaneSpectra, group: int) -> float:
    """Return the seconds of the products, of whole vectors of y."""
    operations = 8.0 * x.count(group) * x.tiling.frequencies * x.channels * y.blocks * LANES
    return operations / PRODUCT_RATE
