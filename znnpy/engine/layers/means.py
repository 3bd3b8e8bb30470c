"""Tasks of `mean` edges: the mean over all voxels of a channel, at each of them; backward is the same sum."""

from __future__ import annotations

from znnpy_kernels.layers.means import lane_sums, spread_mean
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.regions import SMALL, Name, Use
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.step import Step, counts, plane_ranges, rows_of
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.geometry import voxels
from znnpy.network.types import Edge
from znnpy.plan.cost import MEMORY_RATE

SUMS = Use("partial sums of means", SMALL)
GRADIENT_SUMS = Use("partial sums of gradients of means", SMALL)
DOUBLE = 2  # floats of a float64


def forward(step: Step, build: Build, edge: Edge) -> None:
    """Declare the tasks that write the means of an edge's source."""
    target = build.maps.contributions[edge.name]
    _mean(step, build, build.value(edge.source), target, SUMS, edge, Pass.FORWARD)


def backward(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Declare the tasks that write the means of the gradient: each voxel has the same share in all of them."""
    target = build.maps.backward[edge.name]
    _mean(step, build, gradient, target, GRADIENT_SUMS, edge, Pass.BACKWARD)


def _mean(
    step: Step, build: Build, source: Tensor, target: Tensor, use: Use, edge: Edge, serves: Pass
) -> None:
    cuts = plane_ranges(source, 1)
    entry = DOUBLE * LANES * len(cuts)
    sums = build.scratch(Name(use, edge.name), entry * source.batch * source.blocks)
    for batch in range(source.batch):
        for block in range(source.blocks):
            section = batch * source.blocks + block
            leaves = sums.address + 4 * entry * section
            for part, (low, high) in enumerate(cuts):
                step.add(
                    lane_sums,
                    {
                        **rows_of(source, "source", batch, block, low),
                        **counts(source, low, high),
                        "leaf": leaves + 8 * LANES * part,
                        "length": source.row,
                    },
                    what=Identity(edge.name, serves, Part.STATISTICS),
                    cost=_cost(source, low, high),
                    reads=[source.region(batch, block, low, high)],
                    writes=[sums.region(part, part + 1, section=section)],
                )
            for low, high in plane_ranges(target, 1):
                step.add(
                    spread_mean,
                    {
                        **rows_of(target, "target", batch, block, low),
                        **counts(target, low, high),
                        "leaves": leaves,
                        "parts": len(cuts),
                        "voxels": voxels(source.shape),
                        "length": target.row,
                    },
                    what=Identity(edge.name, serves, Part.AVERAGES),
                    cost=_cost(target, low, high),
                    reads=[sums.region(0, len(cuts), section=section)],
                    writes=[target.region(batch, block, low, high)],
                )


def _cost(tensor: Tensor, low: int, high: int) -> float:
    return tensor.plane * (high - low) * 4 / MEMORY_RATE
