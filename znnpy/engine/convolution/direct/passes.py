"""Passes of convolutions by direct correlation, and of transposed ones, whose roles are exchanged."""

from __future__ import annotations

from znnpy.engine.convolution.direct.correlation import against, along, correlate
from znnpy.engine.convolution.direct.rows import in_a_row
from znnpy.engine.convolution.direct.weights import multiply
from znnpy.engine.memory.build import Build
from znnpy.engine.memory.tensors import Tensor, firsts
from znnpy.engine.tasks.step import Step
from znnpy.network.types import Edge


def forward(step: Step, build: Build, edge: Edge) -> None:
    """What an edge brings to its target, with its bias and function where no other edge converges."""
    target = build.images.contributions[edge.name]
    if edge.kind == "conv_transpose":
        before = firsts(build.layout.padding(edge))
        it = against(build, "forward", edge, build.value(edge.source), target, before)
    else:
        it = along(build, "forward", *in_a_row(build, edge, build.seen(edge), target))
    correlate(step, build, edge, it)


def data_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """What an edge brings back to its source, finished where nothing else reads the source's images."""
    if edge.kind == "conv_transpose":
        gradient = gradient.framed(build.layout.padding(edge))
        it = along(build, "gradient", edge, gradient, build.images.backward[edge.name])
    else:
        before = firsts(build.layout.cropped(edge))
        values = build.value(edge.source)  # the gradient of their function may be made too
        row, back, gradient = in_a_row(build, edge, build.back(edge), gradient, values)
        it = against(build, "gradient", row, gradient, back, before)
    correlate(step, build, edge, it)


def weight_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Gradient of an edge's filters; of a transposed one's as those of the convolution the other way."""
    if edge.kind == "conv_transpose":
        gradient = gradient.framed(build.layout.padding(edge))
        multiply(step, build, edge, gradient, build.value(edge.source))
    else:
        multiply(step, build, *in_a_row(build, edge, build.seen(edge), gradient))
