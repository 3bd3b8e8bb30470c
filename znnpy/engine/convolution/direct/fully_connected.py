"""Tasks of the data gradient of fully connected layers, which read filters as they lie, without an exchanged copy."""

from __future__ import annotations

from math import prod

from znnpy_kernels.direct.dense_gradient import SCRATCH, TOGETHER, dense_gradient, vectors_of
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.joined_gradients import applied_backward
from znnpy.engine.memory.tensors import is_dense
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network.types import Edge
from znnpy.plan.algorithms.direct import direct_seconds

LEAST_SAMPLES = 8
"""Exchanging the filters of a vector takes as long as the products of so many samples."""


def takes(build: Build, edge: Edge) -> bool:
    """Return whether an edge's data gradient is made so: where nothing else is applied to it, by sizes alone."""
    layout, maps = build.layout, build.maps
    if not layout.covers(edge) or layout.batch < LEAST_SAMPLES or edge.name not in maps.backward:
        return False
    # Other nodes' gradients are split, or chosen, for each edge.
    if layout.network.node(edge.target).kind not in ("sum", "transfer"):
        return False
    dense = is_dense(build.back(edge)) and is_dense(maps.gradients[edge.target])
    return dense and applied_backward(layout, edge) is None


def data_gradient(step: Step, build: Build, edge: Edge) -> None:
    """Declare the tasks: pairs of vectors of inputs, a block of channels at a tap, for all samples."""
    target, gradient = build.back(edge), build.maps.gradients[edge.target]
    taps, parameter = prod(edge.size), build.parameters[edge.name]
    vectors, whole = vectors_of(target.channels, taps), target.channels // LANES * taps
    seconds = direct_seconds(build.layout.conv_shape(edge), "gradient")
    reads = [
        parameter.values_region(),
        *(region for sample in range(gradient.batch) for region in gradient.regions(sample)),
    ]
    for low, high in build.layout.grain.ranges(-(-vectors // TOGETHER), seconds):
        first, last = TOGETHER * low, min(vectors, TOGETHER * high)
        # Of a last block that is not whole vectors may have several taps.
        blocks = range(
            min(first, whole) // taps, target.blocks if last > whole else -(-last // taps)
        )
        # Tasks that share a block write taps of their own.
        ends = (end == vectors or (end <= whole and end % taps == 0) for end in (first, last))
        strand = -1 if all(ends) else first
        step.add(
            dense_gradient,
            {
                "gradient": gradient.address,
                "gradient_block": gradient.block_stride,
                "filters": parameter.values,
                "target": target.address,
                "target_block": target.block_stride,
                "samples": target.batch,
                "outputs": gradient.channels,
                "inputs": target.channels,
                "taps": taps,
                "vector0": first,
                "vector1": last,
                **build.worker_scratch(SCRATCH),
            },
            what=Identity(edge.name, Pass.BACKWARD, Part.DIRECT),
            cost=seconds * (last - first) / vectors,
            reads=reads,
            writes=[
                target.region(sample, block)._replace(strand=strand)
                for block in blocks
                for sample in range(target.batch)
            ],
        )
