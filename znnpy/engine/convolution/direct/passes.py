"""The passes of direct convolution, of transposed convolution (roles exchanged) and of fully connected layers.

A fully connected layer has filters as large as its source. As the samples of a block lie one behind the other, it is
a convolution of one long row over the batch: the voxels of a sample are taps along x, and the stride is as many.
Register blocks then hold several samples, and each filter is read once for all of them.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from znnpy_kernels.direct.packed_filters import output_groups
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.convolution.direct import fully_connected
from znnpy.engine.convolution.direct.correlation import against, along, correlate
from znnpy.engine.convolution.direct.weight_gradients import SLAB_BYTES, multiply
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.joined_gradients import applied_backward
from znnpy.engine.memory.tensors import ROW_SAMPLES, Tensor, firsts, in_rows, is_dense
from znnpy.engine.tasks.step import Step
from znnpy.network.types import Edge
from znnpy.plan import PassName
from znnpy.plan.algorithms.direct import direct_seconds

FEW_SAMPLES = 8
"""Samples of a row that fill a register block well enough where workers are many."""
LONG_ROW, MANY_PANELS = 2 * ROW_SAMPLES, 16
"""Samples of a row where panels of outputs are tasks enough: their filters are read for so many at once."""


def in_a_row(
    build: Build,
    edge: Edge,
    source: Tensor,
    target: Tensor,
    *beside: Tensor,
    least: int = ROW_SAMPLES,
) -> tuple[Edge, Tensor, Tensor]:
    """Return the edge, source and target as rows of samples if the layer is fully connected, else unchanged.

    `beside`: tensors that are read or written with those, which must lie in the same way; `least`: samples of a row.
    """
    # A frame between samples would be read as voxels of the next one.
    if not (build.layout.covers(edge) and all(map(is_dense, (source, target, *beside)))):
        return edge, source, target
    taps = prod(edge.size)
    return (
        replace(edge, size=(1, 1, taps), stride=(1, 1, taps)),
        in_rows(source, least),
        in_rows(target, least),
    )


def _row_samples(build: Build, edge: Edge, which: PassName, written: Tensor) -> int:
    """Return how many samples a row has at least: fewer where workers are many, if rows split no sum."""
    layout = build.layout
    panels = len(output_groups(written.channels))
    if not layout.grain.many and which == "forward" and panels >= MANY_PANELS:
        return LONG_ROW
    if not layout.grain.many or (which == "gradient" and applied_backward(layout, edge)):
        return ROW_SAMPLES
    rows = layout.grain.shares(direct_seconds(layout.conv_shape(edge), which), panels)
    return max(FEW_SAMPLES, min(ROW_SAMPLES, written.batch // rows))


def forward(step: Step, build: Build, edge: Edge) -> None:
    """Declare the forward pass, with the target's bias and function if no other edge enters it."""
    target = build.maps.contributions[edge.name]
    if edge.kind == "conv_transpose":
        before = firsts(build.layout.padding(edge))
        it = against(build, "forward", edge, build.value(edge.source), target, before)
    else:
        least = _row_samples(build, edge, "forward", target)
        it = along(build, "forward", *in_a_row(build, edge, build.seen(edge), target, least=least))
    correlate(step, build, edge, it)


def data_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Declare the data gradient, with the gradient of the source's function if no other edge reads it."""
    if edge.kind == "conv_transpose":
        # What padding cropped is 0 in the frame: these voxels were never made.
        gradient = gradient.framed(build.layout.padding(edge))
        it = along(build, "gradient", edge, gradient, build.maps.backward[edge.name])
    elif fully_connected.takes(build, edge):
        fully_connected.data_gradient(step, build, edge)
        return
    else:
        before = firsts(build.layout.cropped(edge))
        values = build.value(edge.source)  # the gradient of their function may be made too
        back = build.back(edge)
        least = _row_samples(build, edge, "gradient", back)
        row, back, gradient = in_a_row(build, edge, back, gradient, values, least=least)
        it = against(build, "gradient", row, gradient, back, before)
    correlate(step, build, edge, it)


def weight_gradient(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Declare the weight gradient; a transposed convolution's with source and gradient exchanged."""
    if edge.kind == "conv_transpose":
        gradient = gradient.framed(build.layout.padding(edge))
        multiply(step, build, edge, gradient, build.value(edge.source))
    else:
        # Rows as long as a slab may be: sums of samples end but once.
        least = max(ROW_SAMPLES, SLAB_BYTES // (8 * LANES * prod(edge.size)))
        multiply(step, build, *in_a_row(build, edge, build.seen(edge), gradient, least=least))
