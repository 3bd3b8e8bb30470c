"""Tasks of max_filter and max_pool edges: maxima, the taps that won, gradients to the winners."""

from __future__ import annotations

from math import nan

from znnpy_kernels.layers.pooling import max_pool_backward, max_pool_forward, max_pool_values
from znnpy_kernels.layers.pooling_pairs import (
    max_filter_backward,
    max_filter_forward,
    max_filter_streamed,
    max_filter_values,
)
from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.memory.build import Build
from znnpy.engine.memory.regions import Buffer, Name, Region, Use
from znnpy.engine.memory.tensors import Tensor, source_range
from znnpy.engine.tasks.biases import left_behind, sum_bias
from znnpy.engine.tasks.fusion import is_pair_filter, masked_by_maxima
from znnpy.engine.tasks.identity import Identity, Part, Pass
from znnpy.engine.tasks.step import Step, counts, rows_of
from znnpy.geometry import voxels
from znnpy.network.types import Edge, Triple
from znnpy.plan import ranges
from znnpy.plan.ranges import TARGET_SECONDS

TAPS = Use("taps of maxima")

SECONDS_PER_COMPARE = 4e-11  # one lane of one tap, on one core
SLAB_BYTES = 1 << 19  # of one task's images
# Of images that pass by the caches: most of them would leave before they are read.
STREAMED_BYTES = 1 << 26
PLANES = 6  # of one task at least, where no cache holds two large planes


def forward(step: Step, build: Build, edge: Edge) -> None:
    """Maxima of one edge; with the winning taps when a backward pass follows."""
    source, target = build.value(edge.source), build.images.contributions[edge.name]
    dilation = build.layout.geometry.dilations[edge.name]
    keep_taps = edge.name in build.images.backward
    for batch in range(target.batch):
        for block in range(target.blocks):
            for low, high in _ranges(target, edge, 1 if keep_taps else PLANES):
                wide = source_range(edge, dilation, target.cut, low, high)
                values: dict[str, float] = {
                    **rows_of(source, "source", batch, block, wide[0]),
                    **rows_of(target, "target", batch, block, low),
                    **counts(target, low, high),
                    "width": target.shape[2],
                    **_window(edge, dilation),
                }
                kernel = _values_kernel(target, edge, dilation)
                if keep_taps:
                    kernel = max_filter_forward if is_pair_filter(edge) else max_pool_forward
                    values |= _taps_words(build, edge, target, batch, block, low)
                if keep_taps and is_pair_filter(edge):
                    values |= {"floor": _floor(build, edge)}
                step.add(
                    kernel,
                    values,
                    what=Identity(edge.name, Pass.FORWARD, Part.MAXIMA),
                    cost=_block_seconds(target, edge) * (high - low) / target.extent,
                    reads=[source.region(batch, block, *wide)],
                    writes=[
                        target.region(batch, block, low, high),
                        *(
                            [_taps_region(build, edge, target, batch, block, low, high)]
                            if keep_taps
                            else ()
                        ),
                    ],
                )


def _values_kernel(target: Tensor, edge: Edge, dilation: Triple) -> Kernel:
    """For maxima without taps."""
    if not is_pair_filter(edge):
        return max_pool_values
    large = 4 * target.batch * target.batch_stride >= STREAMED_BYTES
    neighbours = (edge.size[2] - 1) * dilation[2] == 1
    return max_filter_streamed if large and neighbours else max_filter_values


def _floor(build: Build, edge: Edge) -> float:
    """The maximum that has no gradient, nor has any below; a NaN where all have."""
    node = masked_by_maxima(build.layout, edge)
    return 0.0 if node and node.function == "relu" else nan


def backward(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Hand each output's gradient to the input voxel that won.

    The gradients of the source's function and bias are made where nothing else reads its images.
    """
    target = build.images.backward[edge.name]
    node = masked_by_maxima(build.layout, edge)
    cuts = _ranges(target, edge)
    for block in range(target.blocks):
        count = target.batch * len(cuts)
        partials = build.bias_partials(node, block, count) if node else None
        for batch in range(target.batch):
            for index, (low, high) in enumerate(cuts):
                leaf = batch * len(cuts) + index
                words = _backward_words(build, edge, gradient, batch, block, low, high)
                if is_pair_filter(edge):
                    words |= {
                        "bias_gradient": partials.address + 4 * LANES * leaf if partials else 0
                    }
                step.add(
                    max_filter_backward if is_pair_filter(edge) else max_pool_backward,
                    words,
                    what=Identity(edge.name, Pass.BACKWARD, Part.MAXIMA),
                    cost=_block_seconds(target, edge) * (high - low) / target.extent,
                    reads=[
                        gradient.region(batch, block, *_seen(build, edge, gradient, low, high)),
                        _taps_region(build, edge, gradient, batch, block, 0, gradient.extent),
                    ],
                    writes=[
                        target.region(batch, block, low, high),
                        *left_behind(partials, leaf),
                    ],
                )
        if node and partials:
            sum_bias(step, build, node, block, 1, partials, count)


def _backward_words(
    build: Build, edge: Edge, gradient: Tensor, batch: int, block: int, low: int, high: int
) -> dict[str, float]:
    target = build.images.backward[edge.name]
    first_z, _, first_y, _ = target.box(low, high)
    z, y, x = gradient.shape
    return {
        **rows_of(gradient, "gradient", batch, block, 0),
        **_taps_words(build, edge, gradient, batch, block, 0),
        "outputs_z": z,
        "outputs_y": y,
        "outputs_x": x,
        **rows_of(target, "target", batch, block, low),
        **counts(target, low, high),
        "first_plane": first_z,
        "first_row": first_y,
        "width": target.shape[2],
        **_window(edge, build.layout.geometry.dilations[edge.name]),
    }


def _seen(build: Build, edge: Edge, gradient: Tensor, low: int, high: int) -> tuple[int, int]:
    """Planes of the gradient that reach planes low..high of the source."""
    cut = gradient.cut
    reach = (edge.size[cut] - 1) * build.layout.geometry.dilations[edge.name][cut]
    first = max(0, -(-(low - reach) // edge.stride[cut]))
    return first, max(first, min(gradient.extent, (high - 1) // edge.stride[cut] + 1))


def _block_seconds(tensor: Tensor, edge: Edge) -> float:
    return voxels(tensor.shape) * LANES * voxels(edge.size) * SECONDS_PER_COMPARE


def _ranges(tensor: Tensor, edge: Edge, least: int = 1) -> list[tuple[int, int]]:
    """Cuts of one block: small enough that what one task wrote is in the cache for the next.

    At least `least` planes, which share what they read, are kept together.
    """
    slabs = voxels(tensor.shape) * LANES * 4 / SLAB_BYTES
    wanted = max(_block_seconds(tensor, edge), slabs * TARGET_SECONDS)
    return ranges(tensor.extent, wanted, least)


def _window(edge: Edge, dilation: Triple) -> dict[str, float]:
    if is_pair_filter(edge):
        far = ((size - 1) * apart for size, apart in zip(edge.size, dilation, strict=True))
        return dict(zip(("far_z", "far_y", "far_x"), far, strict=True))
    return {
        f"{word}_{axis}": triple[index]
        for word, triple in (("window", edge.size), ("stride", edge.stride), ("dilation", dilation))
        for index, axis in enumerate("zyx")
    }


def _taps(build: Build, edge: Edge, target: Tensor) -> Buffer:
    """The winning taps: dense, a byte or two for each lane; planes of each block of the batch."""
    lanes = target.batch * target.blocks * target.shape[0] * target.shape[1] * target.row
    return build.shared(Name(TAPS, edge.name), lanes * _tap_bytes(edge) // 4 + 1)


def _taps_region(
    build: Build, edge: Edge, target: Tensor, batch: int, block: int, low: int, high: int
) -> Region:
    section = batch * target.blocks + block
    return _taps(build, edge, target).region(low, high, section=section)


def _tap_bytes(edge: Edge) -> int:
    return 1 if is_pair_filter(edge) else 2


def _taps_words(
    build: Build, edge: Edge, target: Tensor, batch: int, block: int, low: int
) -> dict[str, float]:
    """Words `index`, `index_z`, `index_y` of the winning taps."""
    y_stride = target.row
    z_stride = target.shape[1] * y_stride
    whole = target.shape[0] * z_stride
    z, _, y, _ = target.box(low, low + 1)
    offset = (batch * target.blocks + block) * whole + z * z_stride + y * y_stride
    first = _taps(build, edge, target).address + _tap_bytes(edge) * offset
    return {"index": first, "index_z": z_stride, "index_y": y_stride}
