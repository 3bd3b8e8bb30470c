"""Tasks of average pooling (avg_pool edges), forward and backward."""

from __future__ import annotations

from znnpy_kernels.layers.average_pooling import average_backward, average_forward

from znnpy.engine.layers.pooling_windows import (
    backward_words,
    block_seconds,
    forward_words,
    read_part,
    seen_planes,
    window_parts,
    window_ranges,
)
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.step import Step, floats_of
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network.types import Edge


def forward(step: Step, build: Build, edge: Edge) -> None:
    """Declare the tasks that compute the means of an edge's windows."""
    source, target = build.value(edge.source), build.maps.contributions[edge.name]
    for batch in range(target.batch):
        for block in range(target.blocks):
            for planes in window_parts(step, build, edge):
                share = floats_of(target, planes) / (target.plane * target.extent)
                step.add(
                    average_forward,
                    forward_words(build, edge, batch, block, planes)
                    | {"counted": int(edge.count_padding)},
                    what=Identity(edge.name, Pass.FORWARD, Part.AVERAGES),
                    cost=block_seconds(target, edge) * share,
                    reads=source.met(batch, block, *read_part(build, edge, source, planes)),
                    writes=target.met(batch, block, *planes),
                )


def backward(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Declare the tasks that spread each output's gradient equally over the voxels of its window."""
    target = build.maps.backward[edge.name]
    for batch in range(target.batch):
        for block in range(target.blocks):
            for low, high in window_ranges(target, edge, cut=build.layout.grain.ranges):
                seen = seen_planes(build, edge, gradient, low, high)
                step.add(
                    average_backward,
                    backward_words(build, edge, gradient, batch, block, low, high)
                    | {"counted": int(edge.count_padding)},
                    what=Identity(edge.name, Pass.BACKWARD, Part.AVERAGES),
                    cost=block_seconds(gradient, edge) * (high - low) / target.extent,
                    reads=[gradient.region(batch, block, *seen)],
                    writes=[target.region(batch, block, low, high)],
                )
