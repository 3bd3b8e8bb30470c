"""Tasks of the products at each frequency: sums over channels, or over tiles for filter gradients."""

from __future__ import annotations

from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.spectral import gauss_products as gauss
from znnpy_kernels.spectral.exchanged_filters import backward_floats
from znnpy_kernels.spectral.gemm import backward_products, spectral_gradients, spectral_products

from znnpy.engine.convolution.spectral.buffers import Filters
from znnpy.engine.convolution.tiles import PAIR, TileSpectra
from znnpy.engine.memory.allocation import Build
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network.types import Edge, Triple
from znnpy.plan.tiles import PRODUCT_RATE, SPECTRA_RATE


def emit_products(
    step: Step,
    build: Build,
    edge: Edge,
    x: TileSpectra,
    w: Filters,
    y: TileSpectra,
    group: int,
    serves: Pass,
) -> None:
    """Declare the spectra of the sums over images, of one group of tiles."""
    count = x.tiling.frequencies
    seconds = _product_seconds(x, w, group)
    for low, high in build.layout.grain.ranges(count, seconds):
        step.add(
            _kernel(spectral_products, gauss.gauss_products, x, group, w.inputs, y.blocks),
            _product_words(x, w, y, group, low, high) | left_out(y, low),
            what=Identity(edge.name, serves, Part.PRODUCTS),
            cost=seconds * (high - low) / count,
            # Whole buffers: regions of spectra are counted by whoever writes them, here tiles and
            # there frequencies.
            divides=True,
            reads=[x.places[group].region(), w.place.region()],
            writes=[y.places[group].region(low, high)],
        )


def emit_backward_products(
    step: Step, build: Build, edge: Edge, dy: TileSpectra, w: Filters, dx: TileSpectra, group: int,
    serves: Pass,
) -> None:  # fmt: skip
    """Declare the same sums for the data gradient, with the forward pass's filters conjugated and exchanged as read."""
    count, outputs = dy.tiling.frequencies, build.parameters[edge.name].packed_shape[0]
    seconds = _product_seconds(dy, w, group)
    words = {
        "inputs": outputs,
        "images": w.inputs,
        **build.worker_scratch(backward_floats(outputs)),
    }
    for low, high in build.layout.grain.ranges(count, seconds):
        step.add(
            _kernel(backward_products, gauss.gauss_backward, dy, group, outputs, dx.blocks),
            _product_words(dy, w, dx, group, low, high) | left_out(dx, low) | words,
            what=Identity(edge.name, serves, Part.PRODUCTS),
            cost=seconds * (high - low) / count,
            divides=True,
            reads=[dy.places[group].region(), w.place.region()],
            writes=[dx.places[group].region(low, high)],
        )


def emit_weight_products(
    step: Step, build: Build, edge: Edge, x: TileSpectra, w: Filters, dy: TileSpectra, group: int
) -> None:
    """Declare the tasks that add one group of tiles to the spectra of filter gradients."""
    count = x.tiling.frequencies
    seconds = _product_seconds(x, w, group)
    # Cut as the first group is: all groups add to the same ranges of frequencies, one after the
    # other.
    for low, high in build.layout.grain.ranges(count, _product_seconds(x, w, 0)):
        sums = w.place.region(low, high)
        step.add(
            _kernel(spectral_gradients, gauss.gauss_gradients, x, group, w.inputs, dy.blocks),
            {
                **_product_words(x, w, dy, group, low, high),
                **left_out_of_filters(x.tiling.tile, low),
                "accumulate": int(group > 0),
            },
            what=Identity(edge.name, Pass.WEIGHT, Part.PRODUCTS),
            cost=seconds * (high - low) / count,
            divides=True,
            reads=[
                x.places[group].region(),
                dy.places[group].region(),
                *([sums] if group else ()),
            ],
            writes=[sums],
        )


def left_out(y: TileSpectra, low: int) -> dict[str, int]:
    """Return the words by which products from frequency `low` on leave out those that `y` is read without.

    Packed tiles are read in whole.
    """
    if y.packed:
        return {"first": low, "size_y": 0, "size_x": 0}
    return left_out_of_filters(y.tiling.tile, low)


def left_out_of_filters(tile: Triple, low: int) -> dict[str, int]:
    """Return these words for the gradients of filters, which no frequency that is mirrored is read of."""
    return {"first": low, "size_y": tile[1], "size_x": tile[2]}


def _product_words(
    x: TileSpectra, w: Filters, y: TileSpectra, group: int, low: int, high: int
) -> dict[str, int]:
    return {
        "x": x.at(group, frequency=low),
        "x_frequency": x.frequency_stride,
        "x_tile": x.tile_stride,
        "x_block": x.block_stride,
        "w": w.at(frequency=low),
        "w_frequency": w.frequency_stride,
        "w_input": w.input_stride,
        "w_block": PAIR,
        "y": y.at(group, frequency=low),
        "y_frequency": y.frequency_stride,
        "y_tile": y.tile_stride,
        "y_block": y.block_stride,
        "frequencies": high - low,
        "tiles": x.count(group),
        "inputs": w.inputs,
        "blocks": y.blocks,
        "x_parts": x.imaginary,
        "y_parts": y.imaginary,
        "lanes": y.last_lanes,
    }


def _kernel(
    four: Kernel, three: Kernel, x: TileSpectra, group: int, inputs: int, blocks: int
) -> Kernel:
    """Return the kernel of products with so many inputs and vectors of outputs, by four or three multiplications."""
    return three if gauss.takes(x.count(group), inputs, blocks) else four


def _product_seconds(x: TileSpectra, w: Filters, group: int) -> float:
    """Return the seconds of one group: bound by operations and by the spectra that come and go."""
    outputs = w.blocks * LANES
    seconds = w.inputs * outputs / PRODUCT_RATE + (w.inputs + outputs) / SPECTRA_RATE
    return 8.0 * x.count(group) * x.tiling.frequencies * seconds
