"""Tasks that add up the gradients of biases, in fixed order, from the partial sums that other tasks leave."""

from __future__ import annotations

from znnpy_kernels.layers.reduction import sum_lanes, sum_vectors
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.regions import Buffer, Region
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network.types import Node
from znnpy.plan.cost import MEMORY_RATE


def sum_bias(
    step: Step, build: Build, node: Node, first: int, blocks: int, partials: Buffer, count: int
) -> None:
    """Declare the task that adds up `count` partial sums of `blocks` channel blocks each, from block `first` on."""
    parameter = build.parameters[node.name]
    step.add(
        sum_vectors,
        {
            "source": partials.address,
            # A bias is one float a channel, so a block of channels is one vector.
            "target": parameter.gradient + 4 * LANES * first,
            "count": count,
            "length": blocks * LANES,
        },
        what=Identity(node.name, Pass.WEIGHT, Part.BIAS),
        cost=count * blocks * LANES * 4 / MEMORY_RATE,
        reads=[partials.region(0, count)],
        writes=[parameter.gradient_region(first, first + blocks)],
    )


def sum_planar_bias(
    step: Step, build: Build, node: Node, channel: int, partials: Buffer, count: int, together: int
) -> None:
    """Declare the task that adds up `count` vectors for a channel of a planar node.

    Each partial sum holds `together` channels, a vector of each.
    """
    parameter = build.parameters[node.name]
    block = channel // LANES
    step.add(
        sum_lanes,
        {
            # Partial sums of planar channels are whole vectors, whose lanes are added as well.
            "source": partials.address + 4 * LANES * (channel % together),
            "target": parameter.gradient + 4 * channel,
            "count": count,
            "step": LANES * together,
        },
        what=Identity(node.name, Pass.WEIGHT, Part.BIAS),
        cost=count * LANES * 4 / MEMORY_RATE,
        reads=[partials.region(0, count)],
        # Strand by lane: the channels of a block are written side by side.
        writes=[parameter.gradient_region(block, block + 1, channel % LANES)],
    )


def left_behind(partials: Buffer | None, leaf: int) -> list[Region]:
    """Return the regions that a task writes if it leaves partial sum `leaf`; none if there is no bias."""
    return [partials.region(leaf, leaf + 1)] if partials else []
