"""Tasks for constrained filters: repeated taps, groups of channels, weight standardisation.

Repeated taps: gradients are averaged over each block of equal taps. Groups: filters and gradients between channels of
different groups are set to 0. Weight standardisation: filters are standardised before passes read them, and the
gradient by these becomes that by the learned ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from math import prod

from znnpy_kernels.direct import packed_filters as kernels
from znnpy_kernels.direct.weight_standardization import standardize_filters
from znnpy_kernels.direct.weight_standardization import standardized_gradient as gradient_kernel

from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.parameters import Parameter
from znnpy.engine.memory.regions import Buffer
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.layers.normalization import FILTER_EPSILON
from znnpy.network.types import ONCE, Edge
from znnpy.plan.cost import MEMORY_RATE


def average_gradient(step: Step, build: Build, edge: Edge) -> None:
    """Declare the tasks that average a weight gradient over blocks of equal taps; none without `repeat`."""
    if edge.repeat == ONCE:
        return
    parameter = build.parameters[edge.name]
    for index, piece in enumerate(parameter.pieces):
        step.add(
            kernels.average_repeats,
            {
                "filters": parameter.gradient + 4 * piece.start,
                **dict(zip("zyx", edge.size, strict=True)),
                **{f"repeat_{axis}": n for axis, n in zip("zyx", edge.repeat, strict=True)},
                # From tap to tap lie all filters of a piece; the average is taken for each of them.
                "step": piece.inputs * piece.width,
            },
            what=Identity(edge.name, Pass.WEIGHT, Part.REPEATS),
            cost=piece.floats * 8 / MEMORY_RATE,
            # In place: what is read is written.
            reads=[own := parameter.gradient_region(index, index + 1)],
            writes=[own],
        )


def clear_gradient(step: Step, build: Build, edge: Edge) -> None:
    """Declare the tasks that set a weight gradient between groups to 0; none without groups."""
    parameter = build.parameters[edge.name]
    clear_groups(step, parameter, parameter.gradient_buffer, Pass.WEIGHT)


def clear_groups(step: Step, parameter: Parameter, bank: Buffer, serves: Pass) -> None:
    """Declare the tasks that set filters between channels of different groups to 0; none where there are no such."""
    if parameter.groups in (1, len(parameter.bands)):
        return
    outputs, inputs, *size = parameter.packed_shape
    for index, piece in enumerate(parameter.pieces):
        step.add(
            kernels.clear_groups,
            {
                "filters": bank.address + 4 * piece.start,
                "taps": prod(size),
                "inputs": piece.inputs,
                "width": piece.width,
                "first_input": piece.first_input,
                "first_output": piece.first_output,
                "group_inputs": inputs // parameter.groups,
                "group_outputs": outputs // parameter.groups,
            },
            what=Identity(parameter.name, serves, Part.GROUPS),
            cost=piece.floats * 4 / MEMORY_RATE,
            reads=[own := bank.region(index, index + 1)],
            writes=[own],
        )


def standardize(step: Step, build: Build, edge: Edge) -> None:
    """Declare the tasks that standardise the stored filters for the passes; none for edges without."""
    parameter = build.parameters[edge.name]
    if not parameter.standardized:
        return
    for low, high, words, floats in _panels(parameter):
        step.add(
            standardize_filters,
            {**words, "target": parameter.values + 4 * parameter.pieces[low].start},
            what=Identity(edge.name, Pass.FORWARD, Part.STANDARDIZED),
            # Read twice, for statistics and values, and written once.
            cost=floats * 12 / MEMORY_RATE,
            reads=[parameter.stored_region(low, high)],
            writes=[parameter.values_region(low, high)],
        )
    # Taking the mean off makes zeros between groups other than 0.
    clear_groups(step, parameter, parameter.values_buffer, Pass.FORWARD)


def standardized_gradient(step: Step, build: Build, edge: Edge) -> None:
    """Declare the tasks that turn the gradient by standardised filters into that by the stored ones, in place."""
    parameter = build.parameters[edge.name]
    if not parameter.standardized:
        return
    for low, high, words, floats in _panels(parameter):
        step.add(
            gradient_kernel,
            {**words, "gradient": parameter.gradient + 4 * parameter.pieces[low].start},
            what=Identity(edge.name, Pass.WEIGHT, Part.STANDARDIZED),
            cost=floats * 24 / MEMORY_RATE,
            reads=[parameter.stored_region(low, high), own := parameter.gradient_region(low, high)],
            writes=[own],
        )
    clear_groups(step, parameter, parameter.gradient_buffer, Pass.WEIGHT)


def _panels(parameter: Parameter) -> Iterator[tuple[int, int, dict[str, float], int]]:
    """Yield for each group of outputs its pieces low..high, words that both kernels share, and its floats."""
    _, inputs, *size = parameter.packed_shape
    numbered = enumerate(parameter.pieces)
    # All inputs of an output count for its mean, so the pieces of a group of outputs go together.
    for _, group in groupby(numbered, lambda one: one[1].first_output):
        (low, first), *others = group
        floats = first.floats + sum(piece.floats for _, piece in others)
        words = {
            "filters": parameter.stored.address + 4 * first.start,
            "rows": floats // first.width,
            "width": first.width,
            # Zeros between groups are stored, but are no weights.
            "count": prod(size) * inputs // parameter.groups,
            "epsilon": FILTER_EPSILON,
        }
        yield low, low + 1 + len(others), words, floats
