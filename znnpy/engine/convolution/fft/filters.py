"""Tasks of filter spectra for FFT convolution: kept between passes if few, else transformed as they are multiplied."""

from __future__ import annotations

from znnpy_kernels.direct.packed_filters import dense_filters
from znnpy_kernels.fft.filters import filter_spectra
from znnpy_kernels.fft.fused_products import filter_gradients, filtered_sum

from znnpy.engine.convolution.fft.spectra import Spectra, grid_of
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.regions import Buffer, Name, Use
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.geometry import voxels
from znnpy.network.types import Edge, Triple
from znnpy.plan.cost import MEMORY_RATE, PRODUCT_RATE
from znnpy.plan.fftw import spectrum_floats
from znnpy.plan.partition import ranges
from znnpy.plan.twiddle_tables import plan_filter

DENSE = Use("dense filters")
FILTER_SPECTRA = Use("spectra of filters", "filter spectra")

# Measured in docs/design/convolution.md, "fft": above it spectra are faster made anew than read
# back.
CACHED_FLOATS = 1 << 21  # filter spectra kept between passes: 8 MiB, a share of a usual L3 cache
# Sums run within groups first, so it is part of what fixes the bits. Larger groups write the sum
# less often and take more scratch of a cache.
GROUP = 4  # filters transformed in a worker's scratch before they are multiplied


def filters_stay_cached(build: Build, edge: Edge) -> bool:
    """Return whether an edge's filter spectra are few enough to be kept for all passes of an update.

    Above that they would be written to memory and read back at its speed; making them anew where
    they are multiplied costs less (`scripts/bench_fft.py`).
    """
    outputs, inputs = build.parameters[edge.name].shape[:2]
    return spectra_stay_cached(outputs * inputs, grid_of(build, edge))


def spectra_stay_cached(filters: int, grid: Triple) -> bool:
    """Return whether the spectra of so many filters are few enough to be kept."""
    return filters * spectrum_floats(grid) <= CACHED_FLOATS


def filter_spectra_of(step: Step, build: Build, edge: Edge, serves: Pass | None = None) -> Spectra:
    """Return the spectra [out][in] of an edge's filters; with `serves`, declare the tasks that make them for a pass."""
    parameter, grid = build.parameters[edge.name], grid_of(build, edge)
    outputs, inputs = parameter.shape[:2]
    spectra = Spectra(build, FILTER_SPECTRA, edge.name, outputs * inputs, grid, kept=True)
    if serves:
        plan = plan_filter(grid, edge.size, build.layout.geometry.dilations[edge.name])
        for index in range(len(parameter.pieces)):
            _piece_spectra(step, spectra, build, edge, serves, index, plan.address)
    return spectra


def _piece_spectra(
    step: Step,
    spectra: Spectra,
    build: Build,
    edge: Edge,
    serves: Pass,
    index: int,
    plan: int,
) -> None:
    """Declare the tasks that make the spectra of one piece's filters."""
    parameter, seconds = build.parameters[edge.name], _filter_seconds(spectra.grid, edge.size)
    outputs, inputs = parameter.shape[:2]
    piece = parameter.pieces[index]
    tap_z, tap_y, tap_x = parameter.tap_strides(piece.first_output, piece.first_input)
    # A task takes filters in a row: of one input, or of one output if the piece has more inputs. By axis: how many,
    # and from one to the next the floats between their taps and the number of their spectrum.
    axes = (
        (min(piece.width, outputs - piece.first_output), 1, inputs),
        (piece.inputs, piece.width, 1),
    )
    (rows, row_floats, row_number), (run, floats, number) = sorted(axes)
    first = piece.first_output * inputs + piece.first_input
    for row in range(rows):
        for low, high in ranges(run, run * seconds):
            made = [first + row * row_number + place * number for place in range(low, high)]
            step.add(
                filter_spectra,
                {
                    "source": parameter.values
                    + 4 * (piece.start + row * row_floats + low * floats),
                    "source_z": tap_z,
                    "source_y": tap_y,
                    "source_x": tap_x,
                    "source_filter": floats,
                    "target": spectra.at(made[0]),
                    "target_filter": number * spectra.floats,
                    "filters": high - low,
                    "plan": plan,
                },
                what=Identity(edge.name, serves, Part.FILTER_SPECTRA),
                cost=(high - low) * seconds,
                reads=[parameter.values_region(index, index + 1)],
                writes=[spectra.region(place) for place in made],
            )


def densify(step: Step, build: Build, edge: Edge, serves: Pass) -> None:
    """Declare dense copies of packed filters, after each update."""
    parameter = build.parameters[edge.name]
    outputs, inputs, *size = parameter.shape
    taps = size[0] * size[1] * size[2]
    for index, piece in enumerate(parameter.pieces):
        first = piece.first_output * inputs + piece.first_input
        step.add(
            dense_filters,
            {
                "source": parameter.values + 4 * piece.start,
                "target": _dense(build, edge).address + 4 * first * taps,
                "width": piece.width,
                "outputs": min(piece.width, outputs - piece.first_output),
                "inputs": piece.inputs,
                "taps": taps,
                "output_stride": inputs * taps,
            },
            what=Identity(edge.name, serves, Part.DENSE_FILTERS),
            cost=piece.floats * 8 / MEMORY_RATE,
            reads=[parameter.values_region(index, index + 1)],
            writes=[_dense(build, edge).region(index, index + 1)],
        )


def emit_filtered_sum(
    step: Step, build: Build, edge: Edge, a: Spectra, out: Spectra, what: Identity
) -> None:
    """Declare sums of spectra times those of dense filters, which are made in each worker's scratch."""
    backward = what.serves is Pass.BACKWARD
    outputs, inputs, *size = build.parameters[edge.name].shape
    dilation = build.layout.geometry.dilations[edge.name]
    plan = plan_filter(a.grid, edge.size, dilation)
    taps = size[0] * size[1] * size[2]
    terms, images = (outputs, inputs) if backward else (inputs, outputs)
    # Dense filters lie [out][in][tap]: backward, images are inputs and terms outputs.
    image_step, term_step = (taps, inputs * taps) if backward else (inputs * taps, taps)
    batch = a.count // terms
    for image in range(images):
        step.add(
            filtered_sum,
            {
                "images": a.at(0),
                "images_term": a.floats,
                "images_row": terms * a.floats,
                "source": _dense(build, edge).address + 4 * image * image_step,
                "source_z": size[1] * size[2],
                "source_y": size[2],
                "source_x": 1,
                "source_term": term_step,
                "out": out.at(image),
                "out_row": images * out.floats,
                "terms": terms,
                "rows": batch,
                # The forward pass is a cross-correlation, its data gradient a convolution.
                "conjugate": int(not backward),
                "add": 0,
                "group": GROUP,
                **build.worker_scratch(GROUP * a.floats),
                "plan": plan.address,
            },
            what=what,
            cost=terms * (_filter_seconds(a.grid, edge.size) + batch * a.floats * 4 / PRODUCT_RATE),
            reads=[_dense(build, edge).region(0, len(build.parameters[edge.name].pieces))]
            + [a.region(index) for index in range(a.count)],
            writes=[out.region(row * images + image) for row in range(batch)],
        )


def weight_gradient(step: Step, build: Build, edge: Edge, x: Spectra, dy: Spectra) -> None:
    """Declare filter gradients from spectra: each product is transformed back where it was made."""
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
                what=Identity(edge.name, Pass.WEIGHT, Part.PRODUCTS),
                cost=piece.inputs * seconds,
                reads=[dy.region(row * outputs + output) for row in range(batch)]
                + [
                    x.region(row * inputs + source)
                    for row in range(batch)
                    for source in range(piece.first_input, piece.first_input + piece.inputs)
                ],
                # Tasks of different outputs write different lanes of one piece: the output is the
                # strand.
                writes=[parameter.gradient_region(index, index + 1, output)],
            )


def _dense(build: Build, edge: Edge) -> Buffer:
    """Return the buffer of an edge's dense filters; its regions count pieces."""
    outputs, inputs, *size = build.parameters[edge.name].shape
    return build.kept(Name(DENSE, edge.name), outputs * inputs * size[0] * size[1] * size[2])


def _filter_seconds(grid: Triple, size: Triple) -> float:
    # Lines along z dominate: for each of voxels / 2 frequencies size[0] complex multiply-adds.
    return 4.0 * voxels(grid) * size[0] / PRODUCT_RATE
