"""Tasks that read a layer's filters from the file in which they lie, just before the layer."""

from __future__ import annotations

from znnpy_kernels.data.file_reading import read_part

from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.filter_file import READ_RATE
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network.types import Edge


def read_filters(step: Step, build: Build, edge: Edge) -> None:
    """Declare the tasks that read an edge's filters; none where they are in memory."""
    parameter = build.parameters.get(edge.name)
    if parameter is None or parameter.place is None:
        return
    pieces = parameter.pieces
    seconds = 4 * parameter.floats / READ_RATE
    for low, high in build.layout.grain.ranges(len(pieces), seconds):
        first = pieces[low].start
        floats = pieces[high - 1].start + pieces[high - 1].floats - first
        step.add(
            read_part,
            {
                "file": build.file,
                "offset": parameter.place + 4 * first,
                "target": parameter.values + 4 * first,
                "bytes": 4 * floats,
            },
            what=Identity(edge.name, Pass.FORWARD, Part.FILTERS_READ),
            cost=4 * floats / READ_RATE,
            reads=[],
            writes=[parameter.values_region(low, high)],
        )
