"""Tasks for filters that cannot be just any: the gradients are those of what can.

Filters whose taps repeat: an average over each block of equal taps. Filters of groups: none between images of
different groups.
"""

from __future__ import annotations

from math import prod

from znnpy_kernels.direct import filters as kernels

from znnpy.engine.memory.build import Build
from znnpy.engine.memory.parameters import Parameter
from znnpy.engine.memory.regions import Buffer
from znnpy.engine.tasks.identity import Identity, Part, Pass
from znnpy.engine.tasks.step import Step
from znnpy.network.types import ONCE, Edge
from znnpy.plan.cost import MEMORY_RATE


def average_gradient(step: Step, build: Build, edge: Edge) -> None:
    """Project a conv's weight gradient on filters that repeat; nothing where none do."""
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
                "step": piece.inputs * piece.width,
            },
            what=Identity(edge.name, Pass.WEIGHT, Part.REPEATS),
            cost=piece.floats * 8 / MEMORY_RATE,
            reads=[own := parameter.gradient_region(index, index + 1)],
            writes=[own],
        )


def clear_gradient(step: Step, build: Build, edge: Edge) -> None:
    """Project an edge's weight gradient on filters within groups; nothing where all images are one."""
    parameter = build.parameters[edge.name]
    clear_groups(step, parameter, parameter.gradient_buffer, Pass.WEIGHT)


def clear_groups(step: Step, parameter: Parameter, bank: Buffer, serves: Pass) -> None:
    """Filters between images of different groups become 0; nothing where all images are one."""
    if parameter.groups == 1:
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
