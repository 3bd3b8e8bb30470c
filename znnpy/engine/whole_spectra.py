"""Whole-image FFT convolution as tasks: spectra made once an update and shared by the passes.

Products and converging sums happen in the frequency domain; one inverse transform ends each sum
(ZNN, arXiv 1510.06706, section IV). `done` of a step remembers which spectra it has made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from znnpy_kernels.dense_filters import dense_filters
from znnpy_kernels.fft_filters import filter_spectra
from znnpy_kernels.fft_fused import filter_gradients, filtered_sum
from znnpy_kernels.fft_images import image_spectra, spectra_images
from znnpy_kernels.spectral_product import spectral_product

from znnpy.engine.build import Build
from znnpy.engine.dependencies import Region
from znnpy.engine.step import Step, combine_flat
from znnpy.engine.tensors import Tensor
from znnpy.geometry import voxels
from znnpy.network.types import Edge, Triple
from znnpy.plan.cost import MEMORY_RATE, PRODUCT_RATE, TRANSFORM_RATE
from znnpy.plan.fftw import good_size, plan_forward, plan_inverse, spectrum_floats
from znnpy.plan.filters import plan_filter
from znnpy.plan.parts import TARGET_SECONDS, parts

LINE = 16  # floats: cuts between frequencies fall on cache lines
COLUMNS = 4  # output images of one product task: they share the loads of the terms
CACHED_FLOATS = 1 << 21  # filter spectra kept between passes: 8 MiB, a share of a usual L3 cache
GROUP = 4  # filters transformed in a worker's scratch before they are multiplied


def grid_of(build: Build, edge: Edge) -> Triple:
    """FFT grid of an edge: the source's size, rounded up to sizes that transform fast."""
    z, y, x = (good_size(size) for size in build.layout.shape(edge.source))
    return (z, y, x)


@dataclass(frozen=True)
class Product:
    """Which spectra meet: out[row, column] = sum over terms of a[term, row] * b[term, column].

    Steps and firsts count spectra. `conjugate` multiplies with the conjugate of b.
    """

    terms: int
    rows: int
    columns: int
    a_term: int
    a_row: int
    b_term: int
    b_column: int
    out_row: int
    out_column: int
    conjugate: bool
    a_first: int = 0
    b_first: int = 0
    out_first: int = 0

    def touched(self, columns: range) -> tuple[list[int], list[int], list[int]]:
        """Indices of the spectra of a and b read, and of out written, for some columns."""
        terms, rows = range(self.terms), range(self.rows)
        return (
            [self.a_first + t * self.a_term + r * self.a_row for t in terms for r in rows],
            [self.b_first + t * self.b_term + c * self.b_column for t in terms for c in columns],
            [
                self.out_first + r * self.out_row + c * self.out_column
                for r in rows
                for c in columns
            ],
        )


class Spectra:
    """Spectra of a tensor's images on one grid: [batch][image][floats]."""

    def __init__(self, build: Build, name: tuple[object, ...], count: int, grid: Triple) -> None:
        self.key = (*name, grid)
        self.grid, self.count = grid, count
        self.floats = spectrum_floats(grid)
        self.address = build.scratch(self.key, count * self.floats)

    def at(self, index: int, frequency: int = 0) -> int:
        """Address of one spectrum, from a float on."""
        return self.address + 4 * (index * self.floats + frequency)

    def region(self, index: int, low: int = 0, high: int | None = None) -> Region:
        """Floats low..high of one spectrum."""
        return Region((*self.key, index), low, self.floats if high is None else high)

    def cuts(self, seconds: float) -> list[tuple[int, int]]:
        """Ranges of floats of a spectrum, on cache lines, for work of that many seconds."""
        return [(low * LINE, high * LINE) for low, high in parts(self.floats // LINE, seconds)]


def image_spectra_of(
    step: Step, build: Build, tensor: Tensor, owner: str, what: str, grid: Triple
) -> Spectra:
    """Spectra of all images of a tensor; emitted once a step, shared by all that ask."""
    spectra = Spectra(build, (what, owner), tensor.batch * tensor.images, grid)
    if not step.once(spectra.key):
        return spectra
    plan = plan_forward(grid, tensor.shape)
    for batch in range(tensor.batch):
        for first, count in _channel_groups(tensor, grid):
            block, lane = divmod(first, tensor.lanes)
            index = batch * tensor.images + first
            step.add(
                image_spectra,
                {
                    "source": tensor.at(batch, block) + 4 * lane,
                    "source_z": tensor.z_stride,
                    "source_y": tensor.y_stride,
                    "source_x": tensor.lanes,
                    "source_channel": 1 if tensor.lanes > 1 else tensor.block_stride,
                    "target": spectra.at(index),
                    "target_channel": spectra.floats,
                    "channels": count,
                    "plan": plan.address,
                },
                name=f"{owner} {what}",
                kind="transform",
                cost=count * _transform_seconds(grid),
                reads=[tensor.region(batch, block)],
                writes=[spectra.region(index + c) for c in range(count)],
            )
    return spectra


def images_of_spectra(step: Step, spectra: Spectra, tensor: Tensor, name: str) -> None:
    """Inverse transforms of all spectra into a tensor; the spectra are used up."""
    plan = plan_inverse(spectra.grid, tensor.shape)
    for batch in range(tensor.batch):
        for first, count in _channel_groups(tensor, spectra.grid):
            block, lane = divmod(first, tensor.lanes)
            index = batch * tensor.images + first
            step.add(
                spectra_images,
                {
                    "source": spectra.at(index),
                    "source_channel": spectra.floats,
                    "target": tensor.at(batch, block) + 4 * lane,
                    "target_z": tensor.z_stride,
                    "target_y": tensor.y_stride,
                    "target_x": tensor.lanes,
                    "target_channel": 1 if tensor.lanes > 1 else tensor.block_stride,
                    "channels": count,
                    "add": 0,
                    "plan": plan.address,
                },
                name=name,
                kind="transform",
                cost=count * _transform_seconds(spectra.grid),
                reads=[],
                writes=[
                    *(spectra.region(index + c) for c in range(count)),
                    Region((tensor.key, batch, block), 0, tensor.extent, lane),
                ],
            )


def filter_spectra_of(step: Step, build: Build, edge: Edge, *, emit: bool) -> Spectra:
    """Spectra [out][in] of an edge's filters; `emit` adds the tasks that make them anew."""
    parameter, grid = build.parameters[edge.name], grid_of(build, edge)
    outputs, inputs = parameter.shape[:2]
    spectra = Spectra(build, ("filters", edge.name), outputs * inputs, grid)
    if emit:
        plan = plan_filter(grid, edge.size, build.layout.geometry.dilations[edge.name])
        seconds = _filter_seconds(grid, edge.size)
        for low, high in parts(inputs, outputs * inputs * seconds):
            for output in range(outputs):
                for source in range(low, high):
                    _filter_task(step, spectra, build, edge, output, source, plan.address, seconds)
    return spectra


def _filter_task(
    step: Step,
    spectra: Spectra,
    build: Build,
    edge: Edge,
    output: int,
    source: int,
    plan: int,
    seconds: float,
) -> None:
    parameter = build.parameters[edge.name]
    index = output * parameter.shape[1] + source
    tap_z, tap_y, tap_x = parameter.tap_strides(output, source)
    step.add(
        filter_spectra,
        {
            "source": parameter.values + 4 * parameter.offset(output, source),
            "source_z": tap_z,
            "source_y": tap_y,
            "source_x": tap_x,
            "source_filter": 0,
            "target": spectra.at(index),
            "target_filter": spectra.floats,
            "filters": 1,
            "plan": plan,
        },
        name=f"{edge.name} filter spectra",
        kind="transform",
        cost=seconds,
        reads=[parameter.values_region()],
        writes=[spectra.region(index)],
    )


def _channel_groups(tensor: Tensor, grid: Triple) -> list[tuple[int, int]]:
    """(first channel, count): as many channels of a block a task as fill its time."""
    wanted = max(1, round(TARGET_SECONDS / _transform_seconds(grid)))
    groups = []
    for block in range(tensor.blocks):
        channels = tensor.channels(block)
        for low in range(0, channels, wanted):
            groups.append((block * tensor.lanes + low, min(wanted, channels - low)))
    return groups


def _transform_seconds(grid: Triple) -> float:
    size = voxels(grid)
    return 2.5 * size * max(1, size.bit_length() - 1) / TRANSFORM_RATE


def _filter_seconds(grid: Triple, size: Triple) -> float:
    return 4.0 * voxels(grid) * size[0] / PRODUCT_RATE


def emit_product(
    step: Step,
    a: Spectra,
    b: Spectra,
    out: Spectra,
    shape: Product,
    name: str,
) -> None:
    """Sums of products of spectra, cut by output columns and ranges of frequencies."""
    seconds = shape.terms * shape.rows * a.floats * 4 / PRODUCT_RATE
    for first in range(0, shape.columns, COLUMNS):
        columns = range(first, min(first + COLUMNS, shape.columns))
        for low, high in a.cuts(seconds * len(columns)):
            values = {
                "a": a.at(shape.a_first, low),
                "a_term": shape.a_term * a.floats,
                "a_row": shape.a_row * a.floats,
                "b": b.at(shape.b_first + first * shape.b_column, low),
                "b_term": shape.b_term * b.floats,
                "b_column": shape.b_column * b.floats,
                "out": out.at(shape.out_first + first * shape.out_column, low),
                "out_row": shape.out_row * out.floats,
                "out_column": shape.out_column * out.floats,
                "terms": shape.terms,
                "rows": shape.rows,
                "columns": len(columns),
                "floats": high - low,
                "conjugate": int(shape.conjugate),
                "add": 0,
            }
            read_a, read_b, written = shape.touched(columns)
            step.add(
                spectral_product,
                values,
                name=name,
                kind="product",
                cost=seconds * len(columns) * (high - low) / a.floats,
                reads=[a.region(i, low, high) for i in read_a]
                + [b.region(i, low, high) for i in read_b],
                writes=[out.region(i, low, high) for i in written],
            )


def combine_spectra(step: Step, leaves: Sequence[Spectra], name: str) -> None:
    """Sum spectra of converging edges into the first, by a tree of fixed shape for each image."""
    for index in range(leaves[0].count):
        combine_flat(
            step,
            [leaf.at(index) for leaf in leaves],
            [leaf.region(index) for leaf in leaves],
            leaves[0].floats,
            name,
        )


def filters_stay_cached(build: Build, edge: Edge) -> bool:
    """Whether an edge's filter spectra are few enough to be kept for all passes of an update.

    Above that they would be written to memory and read back at its speed; making them anew where
    they are multiplied costs less (`scripts/bench_fft.py`).
    """
    outputs, inputs = build.parameters[edge.name].shape[:2]
    return outputs * inputs * spectrum_floats(grid_of(build, edge)) <= CACHED_FLOATS


def emit_filtered_sum(
    step: Step, build: Build, edge: Edge, a: Spectra, out: Spectra, *, backward: bool, name: str
) -> None:
    """Sums of spectra times those of dense filters, made in each worker's scratch."""
    outputs, inputs, *size = build.parameters[edge.name].shape
    dilation = build.layout.geometry.dilations[edge.name]
    plan = plan_filter(a.grid, edge.size, dilation)
    taps = size[0] * size[1] * size[2]
    terms, images = (outputs, inputs) if backward else (inputs, outputs)
    image_step, term_step = (taps, inputs * taps) if backward else (inputs * taps, taps)
    batch = a.count // terms
    for image in range(images):
        step.add(
            filtered_sum,
            {
                "images": a.address,
                "images_term": a.floats,
                "images_row": terms * a.floats,
                "source": _dense(build, edge) + 4 * image * image_step,
                "source_z": size[1] * size[2],
                "source_y": size[2],
                "source_x": 1,
                "source_term": term_step,
                "out": out.at(image),
                "out_row": images * out.floats,
                "terms": terms,
                "rows": batch,
                "conjugate": int(not backward),
                "add": 0,
                "group": GROUP,
                **build.worker_scratch(GROUP * a.floats),
                "plan": plan.address,
            },
            name=name,
            kind="product",
            cost=terms * (_filter_seconds(a.grid, edge.size) + batch * a.floats * 4 / PRODUCT_RATE),
            reads=[Region(("dense", edge.name), 0, len(build.parameters[edge.name].pieces))]
            + [a.region(index) for index in range(a.count)],
            writes=[out.region(row * images + image) for row in range(batch)],
        )


def densify(step: Step, build: Build, edge: Edge) -> None:
    """Dense copies of packed filters, after each update."""
    parameter = build.parameters[edge.name]
    outputs, inputs, *size = parameter.shape
    taps = size[0] * size[1] * size[2]
    for index, piece in enumerate(parameter.pieces):
        first = piece.first_output * inputs + piece.first_input
        step.add(
            dense_filters,
            {
                "source": parameter.values + 4 * piece.start,
                "target": _dense(build, edge) + 4 * first * taps,
                "width": piece.width,
                "outputs": min(piece.width, outputs - piece.first_output),
                "inputs": piece.inputs,
                "taps": taps,
                "output_stride": inputs * taps,
            },
            name=f"{edge.name} dense filters",
            kind="update",
            cost=piece.floats * 8 / MEMORY_RATE,
            reads=[parameter.values_region(index, index + 1)],
            writes=[Region(("dense", edge.name), index, index + 1)],
        )


def weight_gradient(step: Step, build: Build, edge: Edge, x: Spectra, dy: Spectra) -> None:
    """Filter gradients from spectra: each product is transformed back where it was made."""
    parameter = build.parameters[edge.name]
    outputs, inputs = parameter.shape[:2]
    batch = x.count // inputs
    plan = plan_filter(x.grid, edge.size, build.layout.geometry.dilations[edge.name])
    seconds = _filter_seconds(x.grid, edge.size) + batch * x.floats * 4 / PRODUCT_RATE
    for index, piece in enumerate(parameter.pieces):
        for output in range(piece.first_output, min(piece.first_output + piece.width, outputs)):
            tap_z, tap_y, tap_x = parameter.tap_strides(output, piece.first_input)
            step.add(
                filter_gradients,
                {
                    "a": x.at(piece.first_input),
                    "a_term": inputs * x.floats,
                    "a_filter": x.floats,
                    "b": dy.at(output),
                    "b_term": outputs * dy.floats,
                    "b_filter": 0,
                    "terms": batch,
                    "target": parameter.gradient + 4 * parameter.offset(output, piece.first_input),
                    "target_z": tap_z,
                    "target_y": tap_y,
                    "target_x": tap_x,
                    "target_filter": piece.width,
                    "filters": piece.inputs,
                    **build.worker_scratch(x.floats),
                    "plan": plan.address,
                },
                name=f"{edge.name} weight gradient",
                kind="product",
                cost=piece.inputs * seconds,
                reads=[dy.region(row * outputs + output) for row in range(batch)]
                + [
                    x.region(row * inputs + source)
                    for row in range(batch)
                    for source in range(piece.first_input, piece.first_input + piece.inputs)
                ],
                writes=[parameter.gradient_region(index, index + 1, output)],
            )


def _dense(build: Build, edge: Edge) -> int:
    """Address of an edge's dense filters."""
    outputs, inputs, *size = build.parameters[edge.name].shape
    return build.scratch(("dense", edge.name), outputs * inputs * size[0] * size[1] * size[2])
