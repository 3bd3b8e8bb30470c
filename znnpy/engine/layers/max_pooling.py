"""Tasks of max pooling and max_filter edges: maxima with the winning taps, and gradients to the winners."""

from __future__ import annotations

from math import nan

from znnpy_kernels.layers.max_pooling import (
    max_pool_backward,
    max_pool_forward,
    max_pool_sum,
    max_pool_values,
)
from znnpy_kernels.layers.max_pooling_pairs import (
    max_filter_backward,
    max_filter_forward,
    max_filter_streamed,
    max_filter_values,
)
from znnpy_kernels.layers.reduction import sum_rows
from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.simd.lanes import LANES

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
from znnpy.engine.memory.tensors import Planes, Tensor
from znnpy.engine.memory.winners import biased_by_maxima, is_pair_filter, weighed_by_maxima
from znnpy.engine.tasks.bias_gradients import left_behind, sum_bias
from znnpy.engine.tasks.fusion import masked_by_maxima
from znnpy.engine.tasks.step import Step, counts, floats_of, plane_ranges, rows_of
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.engine.tasks.winning_taps import taps_met, taps_words
from znnpy.network.types import Edge, Triple
from znnpy.plan.cost import MEMORY_RATE

# Bytes of outputs from which on stores bypass the caches: most of them would be evicted before they are read.
STREAMED_BYTES = 1 << 26
PLANES = 6  # of one task at least: neighbouring tasks read a plane twice where no cache holds two large ones


def forward(step: Step, build: Build, edge: Edge) -> None:
    """Declare the tasks that compute an edge's maxima, with the winning taps if a backward pass follows."""
    source, target = build.value(edge.source), build.maps.contributions[edge.name]
    # An input needs no gradient, nor does anything in prediction.
    keep_taps = edge.name in build.maps.backward
    # In training maps are small and stay in a cache, so narrow ranges cost nothing there; windows that do not overlap
    # share no planes.
    apart = edge.stride[target.cut] >= edge.size[target.cut]
    least = 1 if keep_taps or apart else PLANES
    whole = target.plane * target.extent
    for batch in range(target.batch):
        for block in range(target.blocks):
            for planes in window_parts(step, build, edge, least):
                wide = read_part(build, edge, source, planes)
                kernel, values = _forward_kernel(build, edge, batch, block, planes, wide)
                step.add(
                    kernel,
                    values,
                    what=Identity(edge.name, Pass.FORWARD, Part.MAXIMA),
                    cost=block_seconds(target, edge) * floats_of(target, planes) / whole,
                    reads=source.met(batch, block, *wide),
                    writes=[
                        *target.met(batch, block, *planes),
                        *(taps_met(build, edge, target, batch, block, planes) if keep_taps else ()),
                    ],
                )


def _forward_kernel(
    build: Build, edge: Edge, batch: int, block: int, planes: Planes, wide: Planes
) -> tuple[Kernel, dict[str, float]]:
    """Return the kernel and words for planes of the target, which read the `wide` ones of the source."""
    source, target = build.value(edge.source), build.maps.contributions[edge.name]
    dilation = build.layout.geometry.dilations[edge.name]
    keep_taps = edge.name in build.maps.backward
    words = forward_words(build, edge, batch, block, planes)
    taps = taps_words(build, edge, target, batch, block, planes) if keep_taps else {}
    taps |= {"floor": _floor(build, edge)} if keep_taps else {}
    if not is_pair_filter(edge):
        return max_pool_forward if keep_taps else max_pool_values, words | taps
    words |= rows_of(source, "source", batch, block, wide.low, wide.first)
    words |= _far(edge, dilation)
    if not keep_taps:
        kernel = _values_kernel(target, edge, dilation)
        return kernel, {name: words[name] for name in kernel.fields}
    words |= taps
    return max_filter_forward, {name: words[name] for name in max_filter_forward.fields}


def _values_kernel(target: Tensor, edge: Edge, dilation: Triple) -> Kernel:
    """Return the kernel of maxima without winning taps."""
    large = 4 * target.blocks * target.block_stride >= STREAMED_BYTES
    # The streaming kernel takes the maximum with the next voxel along x.
    neighbours = (edge.size[2] - 1) * dilation[2] == 1
    return max_filter_streamed if large and neighbours else max_filter_values


def _floor(build: Build, edge: Edge) -> float:
    """Return the value at and below which a maximum has no gradient: 0 with a fused relu, else NaN (all have one)."""
    node = build.layout.network.node(edge.source)
    masks = masked_by_maxima(build.layout, edge) or biased_by_maxima(build.layout, node)
    return 0.0 if masks and node.function == "relu" else nan


def backward(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Declare the tasks that add each output's gradient to the input voxel that won.

    They also apply the gradients of the source's function and bias, where `masked_by_maxima` says so. None where
    nobody needs that of the source (`weighed_by_maxima`).
    """
    if weighed_by_maxima(build.layout, build.layout.network.node(edge.source)):
        return
    target = build.maps.backward[edge.name]
    node = masked_by_maxima(build.layout, edge)
    cuts, everything = window_ranges(target, edge), Planes(0, gradient.extent)
    for block in range(target.blocks):
        count = target.batch * len(cuts)
        partials = build.bias_partials(node, block, count) if node else None
        for batch in range(target.batch):
            for index, (low, high) in enumerate(cuts):
                # Numbered through all samples: partial sums are added in this order.
                leaf = batch * len(cuts) + index
                words = _backward_words(build, edge, gradient, batch, block, low, high)
                seen = seen_planes(build, edge, gradient, low, high)
                if is_pair_filter(edge):
                    words |= {
                        "bias_gradient": partials.address + 4 * LANES * leaf if partials else 0
                    }
                step.add(
                    max_filter_backward if is_pair_filter(edge) else max_pool_backward,
                    words,
                    what=Identity(edge.name, Pass.BACKWARD, Part.MAXIMA),
                    cost=block_seconds(target, edge) * (high - low) / target.extent,
                    reads=[
                        gradient.region(batch, block, *seen),
                        # All planes of taps: they are small, and which are read follows from the
                        # window.
                        *taps_met(build, edge, gradient, batch, block, everything),
                    ],
                    writes=[
                        target.region(batch, block, low, high),
                        *left_behind(partials, leaf),
                    ],
                )
        if node and partials:
            sum_bias(step, build, node, block, 1, partials, count)


def bias_gradient(step: Step, build: Build, edge: Edge) -> None:
    """Declare the bias gradient of the edge's source, where `biased_by_maxima` says so: sums of outputs' gradients.

    Behind a relu, of the outputs that a voxel won (`_floor`).
    """
    node, gradient = build.layout.network.node(edge.source), build.maps.gradients[edge.target]
    cuts = [Planes(*cut) for cut in plane_ranges(gradient, 1)]
    for block in range(gradient.blocks):
        count = gradient.batch * len(cuts)
        partials = build.bias_partials(node, block, count)
        if not partials:
            return
        for leaf in range(count):
            batch, planes = leaf // len(cuts), cuts[leaf % len(cuts)]
            masked = node.function == "relu"
            step.add(
                max_pool_sum if masked else sum_rows,
                {
                    **rows_of(gradient, "source", batch, block, planes.low),
                    **counts(gradient, *planes),
                    "partial": partials.address + 4 * LANES * leaf,
                    "length": gradient.row,
                    "channels": gradient.block_channels(block),
                    **(taps_words(build, edge, gradient, batch, block, planes) if masked else {}),
                },
                what=Identity(node.name, Pass.BACKWARD, Part.FUNCTION),
                cost=floats_of(gradient, planes) * 4 / MEMORY_RATE,
                reads=[
                    *gradient.met(batch, block, *planes),
                    *(taps_met(build, edge, gradient, batch, block, planes) if masked else ()),
                ],
                writes=left_behind(partials, leaf),
            )
        sum_bias(step, build, node, block, 1, partials, count)


def _backward_words(
    build: Build, edge: Edge, gradient: Tensor, batch: int, block: int, low: int, high: int
) -> dict[str, float]:
    words = backward_words(build, edge, gradient, batch, block, low, high)
    words |= taps_words(build, edge, gradient, batch, block, Planes(0, 1))
    if not is_pair_filter(edge):
        return words
    words |= _far(edge, build.layout.geometry.dilations[edge.name]) | {"bias_gradient": 0}
    return {name: words[name] for name in max_filter_backward.fields}


def _far(edge: Edge, dilation: Triple) -> dict[str, float]:
    far = ((size - 1) * apart for size, apart in zip(edge.size, dilation, strict=True))
    return dict(zip(("far_z", "far_y", "far_x"), far, strict=True))
