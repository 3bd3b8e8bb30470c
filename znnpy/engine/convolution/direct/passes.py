"""Passes of convolutions by direct correlation, and of transposed ones, whose roles are exchanged.

Fully connected layers: filters that see all of each image, so that a batch is a row of places.

The samples of a block lie one behind the other. Hence such a layer is, over the whole batch, a convolution of
rows: its filter has the voxels of an image as taps along x, and its stride is as many. All passes are those of a
strided convolution, whose register blocks hold several samples: each filter is read once for all of them.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from znnpy.engine.convolution.direct.correlation import against, along, correlate
from znnpy.engine.convolution.direct.weight_gradients import multiply
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.tensors import Tensor, firsts, in_rows, is_dense
from znnpy.engine.tasks.step import Step
from znnpy.network.types import Edge


def in_a_row(
    build: Build, edge: Edge, source: Tensor, target: Tensor, *beside: Tensor
) -> tuple[Edge, Tensor, Tensor]:
    """The edge, its source's images and its target's as rows, where it covers images that lie so; else as they are.

    `beside`: images that are read or written with those.
    """
    if not (build.layout.covers(edge) and all(map(is_dense, (source, target, *beside)))):
        return edge, source, target
    taps = prod(edge.size)
    return (
        replace(edge, size=(1, 1, taps), stride=(1, 1, taps)),
        in_rows(source),
        in_rows(target),
    )


def forward(step: Step, build: Build, edge: Edge) -> None:
    """What an edge brings to its target, with its bias and function where no other edge converges."""
    target = build.maps.contributions[edge.name]
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
        it = along(build, "gradient", edge, gradient, build.maps.backward[edge.name])
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
