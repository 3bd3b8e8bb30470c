"""Filters with inputs and outputs exchanged, where a direct pass reads them so."""

from __future__ import annotations

from math import prod

from znnpy_kernels.direct.packed_filters import packed_size, transpose_filters
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.convolution.direct import fully_connected
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.regions import Buffer, Name, Use
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network.types import Edge
from znnpy.plan.cost import MEMORY_RATE

TRANSPOSED = Use("transposed filters")


def derive(step: Step, build: Build, edge: Edge) -> None:
    """Declare the exchange of inputs and outputs of an edge's filters, where a pass reads them so."""
    serves = _reads_transposed(build, edge)
    if serves:
        transpose(step, build, edge, serves)


def transposed(build: Build, edge: Edge) -> Buffer:
    """Return the buffer of an edge's transposed filters."""
    outputs, inputs, *size = build.parameters[edge.name].packed_shape
    return build.kept(Name(TRANSPOSED, edge.name), packed_size(inputs, outputs, prod(size)))


def _reads_transposed(build: Build, edge: Edge) -> Pass | None:
    """Return the first pass that reads filters with inputs and outputs exchanged; None if none does."""
    if edge.kind == "conv_transpose":
        # Those of a planar target are packed for the convolution that reads it.
        return Pass.FORWARD if build.layout.lanes(edge.target) > 1 else None
    # A planar target has its lanes over inputs, so that filters are read the other way round.
    if build.layout.algorithm(edge, "forward") == "direct" and build.layout.lanes(edge.target) == 1:
        return Pass.FORWARD
    planned = build.layout.algorithm(edge, "gradient") == "direct"
    back = edge.name in build.maps.backward and planned
    back = back and not fully_connected.takes(build, edge)
    return Pass.BACKWARD if back and build.layout.lanes(edge.source) > 1 else None


def transpose(step: Step, build: Build, edge: Edge, serves: Pass) -> None:
    """Declare the tasks that exchange inputs and outputs, for the pass that they serve first."""
    parameter = build.parameters[edge.name]
    outputs, inputs, *size = parameter.packed_shape
    # Twice the bytes that are read and written: neighbours on one side lie apart on the other.
    seconds = parameter.floats * 16 / MEMORY_RATE
    for first, end in build.layout.grain.ranges(
        -(-outputs // LANES), seconds
    ):  # whole tiles are exchanged at once
        low, high = first * LANES, min(outputs, end * LANES)
        step.add(
            transpose_filters,
            {
                "forward": parameter.values,
                "backward": transposed(build, edge).address,
                "outputs": outputs,
                "inputs": inputs,
                "taps": prod(size),
                "planar": int(build.layout.lanes(edge.target) == 1),
                "o0": low,
                "o1": high,
            },
            what=Identity(edge.name, serves, Part.TRANSPOSE),
            cost=seconds * (high - low) / outputs,
            reads=[parameter.values_region()],
            writes=[transposed(build, edge).region(low, high)],
        )
