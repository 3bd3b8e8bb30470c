"""Tasks for filters whose taps repeat: their gradients are averaged over each block of equal taps."""

from __future__ import annotations

from znnpy_kernels.direct.filters import average_repeats

from znnpy.engine.memory.build import Build
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
            average_repeats,
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
