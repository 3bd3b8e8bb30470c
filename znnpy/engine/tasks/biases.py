"""Gradients of biases: sums that tasks leave behind, added up in fixed order."""

from __future__ import annotations

from znnpy_kernels.layers.reduction import sum_lanes, sum_vectors
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.memory.build import Build
from znnpy.engine.memory.regions import Region
from znnpy.engine.tasks.identity import Identity, Part, Pass
from znnpy.engine.tasks.step import Step
from znnpy.network.types import Node
from znnpy.plan.cost import MEMORY_RATE


def sum_bias(
    step: Step, build: Build, node: Node, first: int, blocks: int, partials: int, count: int
) -> None:
    """Add up `count` partial sums of `blocks` channel blocks each, from block `first` on.

    Partial `leaf` is Region(("bias partial", node, first, leaf)).
    """
    parameter = build.parameters[node.name]
    step.add(
        sum_vectors,
        {
            "source": partials,
            "target": parameter.gradient + 4 * LANES * first,
            "count": count,
            "length": blocks * LANES,
        },
        what=Identity(node.name, Pass.WEIGHT, Part.BIAS),
        cost=count * blocks * LANES * 4 / MEMORY_RATE,
        reads=_partials(node, first, count),
        writes=[parameter.gradient_region(first, first + blocks)],
    )


def sum_planar_bias(
    step: Step, build: Build, node: Node, image: int, partials: int, count: int, stride: int
) -> None:
    """Add up `count` vectors, `stride` floats apart, for one image of a planar node."""
    parameter = build.parameters[node.name]
    block = image // LANES
    step.add(
        sum_lanes,
        {
            "source": partials,
            "target": parameter.gradient + 4 * image,
            "count": count,
            "step": stride,
        },
        what=Identity(node.name, Pass.WEIGHT, Part.BIAS),
        cost=count * LANES * 4 / MEMORY_RATE,
        reads=_partials(node, image if stride == LANES else 0, count),
        writes=[parameter.gradient_region(block, block + 1, image % LANES)],
    )


def _partials(node: Node, first: int, count: int) -> list[Region]:
    return [Region(("bias partial", node.name, first, leaf)) for leaf in range(count)]
