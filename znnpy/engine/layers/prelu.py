"""Tasks of the gradients of prelu's learned slopes."""

from __future__ import annotations

from znnpy_kernels.layers.reduction import slopes_gradient, sum_vectors
from znnpy_kernels.layers.tied_slopes import total_of_vectors
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.layers.normalization_tables import Normed
from znnpy.engine.layers.voxel_normalization import argument
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.parameters import Parameter
from znnpy.engine.memory.regions import SMALL, Buffer, Name, Use
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.step import Step, counts, plane_ranges, rows_of
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network.types import Node
from znnpy.plan.cost import MEMORY_RATE

SLOPE_PARTIALS = Use("partial gradients of slopes", SMALL)


def emit_slopes_gradient(step: Step, build: Build, node: Node, summed: Tensor) -> None:
    """Declare the tasks of the gradient by a node's slopes, from that by its values and from its sum."""
    gradient, parameter = build.maps.gradients[node.name], build.parameters[f"{node.name}.slopes"]
    normed = Normed.of(build, node) if node.norm and not node.norm.of_voxels else None
    if node.norm and node.norm.of_voxels:
        summed = argument(step, build, node)
    cuts = plane_ranges(gradient, 2)
    count = gradient.batch * len(cuts)
    whole = build.scratch(Name(SLOPE_PARTIALS, node.name), count * LANES * gradient.blocks)
    for block in range(gradient.blocks):
        for batch in range(gradient.batch):
            for index, (low, high) in enumerate(cuts):
                leaf = count * block + batch * len(cuts) + index
                # Behind a norm the slope meets the normalised sum, which nobody keeps: the kernel
                # makes it again.
                words = normed.affine_words(batch, block) if normed else {"affine": 0, "bias": 0}
                step.add(
                    slopes_gradient,
                    {
                        **rows_of(summed, "source", batch, block, low),
                        **rows_of(gradient, "gradient", batch, block, low),
                        **words,
                        **counts(gradient, low, high),
                        # One vector a part, added in order by `_sum`.
                        "partial": whole.address + 4 * LANES * leaf,
                        "length": gradient.row,
                    },
                    what=Identity(node.name, Pass.WEIGHT, Part.SLOPES),
                    cost=gradient.plane * (high - low) * 8 / MEMORY_RATE,
                    reads=[
                        summed.region(batch, block, low, high),
                        gradient.region(batch, block, low, high),
                        *([normed.affine_reads(batch, block)] if normed else []),
                    ],
                    writes=[whole.region(leaf, leaf + 1)],
                )
        if not node.tied:
            _sum(step, node, parameter, block, whole, count)
    if node.tied:
        _total(step, node, parameter, whole, count * gradient.blocks)


def _total(step: Step, node: Node, parameter: Parameter, partials: Buffer, count: int) -> None:
    step.add(
        total_of_vectors,
        {"source": partials.address, "target": parameter.gradient, "count": count},
        what=Identity(node.name, Pass.WEIGHT, Part.SLOPES),
        cost=count * LANES * 4 / MEMORY_RATE,
        reads=[partials.region(0, count)],
        writes=[parameter.gradient_region()],
    )


def _sum(
    step: Step, node: Node, parameter: Parameter, block: int, partials: Buffer, count: int
) -> None:
    first = count * block
    step.add(
        sum_vectors,
        {
            "source": partials.address + 4 * LANES * first,
            "target": parameter.gradient + 4 * LANES * block,
            "count": count,
            "length": LANES,
        },
        what=Identity(node.name, Pass.WEIGHT, Part.SLOPES),
        cost=count * LANES * 4 / MEMORY_RATE,
        reads=[partials.region(first, first + count)],
        writes=[parameter.gradient_region(block, block + 1)],
    )
