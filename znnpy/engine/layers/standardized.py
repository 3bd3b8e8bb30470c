"""Tasks of weight standardisation: filters that passes read, and the gradient of those that are learned."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from math import prod

from znnpy_kernels.direct.standardized import standardize_filters
from znnpy_kernels.direct.standardized import standardized_gradient as gradient_kernel

from znnpy.engine.layers.repeats import clear_groups
from znnpy.engine.memory.build import Build
from znnpy.engine.memory.parameters import Parameter
from znnpy.engine.tasks.identity import Identity, Part, Pass
from znnpy.engine.tasks.step import Step
from znnpy.layers.standardized import EPSILON
from znnpy.network.types import Edge
from znnpy.plan.cost import MEMORY_RATE


def standardize(step: Step, build: Build, edge: Edge) -> None:
    """Fill the filters that passes read from those that are stored; nothing where they are the same."""
    parameter = build.parameters[edge.name]
    if not parameter.standardized:
        return
    for low, high, words, floats in _panels(parameter):
        step.add(
            standardize_filters,
            {**words, "target": parameter.values + 4 * parameter.pieces[low].start},
            what=Identity(edge.name, Pass.FORWARD, Part.STANDARDIZED),
            cost=floats * 12 / MEMORY_RATE,
            reads=[parameter.stored_region(low, high)],
            writes=[parameter.values_region(low, high)],
        )
    clear_groups(step, parameter, parameter.values_buffer, Pass.FORWARD)


def standardized_gradient(step: Step, build: Build, edge: Edge) -> None:
    """From the gradient by the filters that passes read, in place, that by those that are stored."""
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
    """Of each output group its pieces low..high, which lie together, words that kernels share, and its floats."""
    _, inputs, *size = parameter.packed_shape
    numbered = enumerate(parameter.pieces)
    for _, group in groupby(numbered, lambda one: one[1].first_output):
        (low, first), *others = group
        floats = first.floats + sum(piece.floats for _, piece in others)
        words = {
            "filters": parameter.stored.address + 4 * first.start,
            "rows": floats // first.width,
            "width": first.width,
            "count": prod(size) * inputs // parameter.groups,
            "epsilon": EPSILON,
        }
        yield low, low + 1 + len(others), words, floats
