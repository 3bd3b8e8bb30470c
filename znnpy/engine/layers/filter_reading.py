"""Tasks that read a layer's filters from the file in which they lie, just before the layer."""

from __future__ import annotations

from math import prod

from znnpy_kernels.direct import filter_reading
from znnpy_kernels.direct.packed_filters import output_groups

from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.filter_file import READ_RATE, words_of
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network.types import Edge


def read_filters(step: Step, build: Build, edge: Edge) -> None:
    """Declare the tasks that read an edge's filters; none where they are in memory."""
    parameter = build.parameters.get(edge.name)
    if parameter is None or parameter.place is None:
        return
    outputs, inputs, *size = parameter.shape
    groups, seconds = len(output_groups(outputs)), 4 * parameter.floats / READ_RATE
    pieces = len(parameter.pieces) // groups  # of each group
    for low, high in build.layout.grain.ranges(groups, seconds):
        step.add(
            filter_reading.read_filters,
            {
                "failed": build.file,
                "place": build.file + 8 * words_of(parameter.place),
                "target": parameter.values,
                "outputs": outputs,
                "inputs": inputs,
                "taps": prod(size),
                "first_group": low,
                "last_group": high,
                **build.worker_scratch(filter_reading.scratch_floats(prod(size))),
            },
            what=Identity(edge.name, Pass.FORWARD, Part.FILTERS_READ),
            cost=seconds * (high - low) / groups,
            reads=[],
            writes=[parameter.values_region(low * pieces, high * pieces)],
        )
