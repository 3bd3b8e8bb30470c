"""Shared by all pooling tasks: argument words of windows, the planes that tasks read, cuts and cost estimates."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.tensors import Planes, Tensor
from znnpy.engine.tasks.step import Step, counts, rows_of
from znnpy.geometry import voxels
from znnpy.layers.types import BARE, ONCE
from znnpy.layers.windows import sides
from znnpy.network.types import Edge
from znnpy.plan.partition import Cut, evenly, light_ranges

SECONDS_PER_VOXEL = 7e-11  # estimated cost of one tap for one channel of one voxel, on one core
# Windows that step over voxels share nothing of what they read with their neighbours.
STRIDED = 3.0
# Bytes of one task's outputs: half of an L2 cache of 1 MiB, so that the next layer finds them there.
SLAB_BYTES = 1 << 19


def block_seconds(tensor: Tensor, edge: Edge) -> float:
    """Return the estimated seconds of one channel block."""
    apart = STRIDED if voxels(edge.stride) > 1 else 1.0
    return apart * voxels(tensor.shape) * LANES * voxels(edge.size) * SECONDS_PER_VOXEL


def window_ranges(
    tensor: Tensor, edge: Edge, least: int = 1, cut: Cut = light_ranges
) -> list[tuple[int, int]]:
    """Return the ranges of planes of each task, so small that the next layer finds its input in the cache.

    At least `least` planes, which share what they read, stay together. `cut`: the layout's where tasks leave no sums.
    """
    by_time = cut(tensor.extent, block_seconds(tensor, edge), least)
    by_bytes = evenly(tensor.extent, ceil(voxels(tensor.shape) * LANES * 4 / SLAB_BYTES), least)
    return max(by_time, by_bytes, key=len)


def read_planes(build: Build, edge: Edge, source: Tensor, low: int, high: int) -> tuple[int, int]:
    """Return the planes of the source that planes low..high of the target read, without padding."""
    return _read(build, edge, source, source.cut, low, high)


def _read(
    build: Build, edge: Edge, source: Tensor, axis: int, low: int, high: int
) -> tuple[int, int]:
    dilation = build.layout.geometry.dilations[edge.name]
    before, stride = sides(edge, dilation)[axis][0], edge.stride[axis]
    reach = (edge.size[axis] - 1) * dilation[axis]
    last = min(source.shape[axis], (high - 1) * stride - before + reach + 1)
    # A window may lie in the padding alone: then the range is empty.
    return min(max(0, low * stride - before), last), last


def read_part(build: Build, edge: Edge, source: Tensor, planes: Planes) -> Planes:
    """Return what `read_planes` does, or of rows of the target the rows of these planes that they read."""
    wide = Planes(*read_planes(build, edge, source, planes.low, planes.high))
    if planes.last is None:
        return wide
    across = 1 - source.cut
    return Planes(
        wide.low, wide.high, *_read(build, edge, source, across, planes.first, planes.last)
    )


def window_parts(step: Step, build: Build, edge: Edge, least: int = 1) -> Sequence[Planes]:
    """Return the parts of its outputs that tasks of a forward pass take: of each part of the source its windows.

    Where windows reach from part to part, `window_ranges`.
    """
    source, target = build.value(edge.source), build.maps.contributions[edge.name]
    found = _windows_of(step.cut_of(source), build, edge, target.cut)
    if not found:
        ranges = window_ranges(target, edge, least, build.layout.grain.ranges)
        found = [Planes(low, high) for low, high in ranges]
    step.note_cut(target, found)
    return found


def _windows_of(parts: Sequence[Planes], build: Build, edge: Edge, cut: int) -> list[Planes]:
    """Return the windows of each part, if each part has whole ones; else none."""
    dilation = build.layout.geometry.dilations[edge.name]
    along, across = edge.stride[cut], edge.stride[1 - cut]
    apart = edge.stride == edge.size and dilation == ONCE and edge.padding == BARE
    ends = [(bound, along) for low, high, *_ in parts for bound in (low, high)]
    ends += [(bound or 0, across) for _, _, *rows in parts for bound in rows]
    if not apart or any(bound % stride for bound, stride in ends):
        return []
    return [
        Planes(low // along, high // along, first // across, last and last // across)
        for low, high, first, last in parts
    ]


def seen_planes(build: Build, edge: Edge, gradient: Tensor, low: int, high: int) -> tuple[int, int]:
    """Return the planes of the gradient that contribute to planes low..high of the source."""
    cut, dilation = gradient.cut, build.layout.geometry.dilations[edge.name]
    before, stride = sides(edge, dilation)[cut][0], edge.stride[cut]
    reach = (edge.size[cut] - 1) * dilation[cut]
    first = max(0, -(-(low + before - reach) // stride))
    return first, max(first, min(gradient.extent, (high - 1 + before) // stride + 1))


def forward_words(
    build: Build, edge: Edge, batch: int, block: int, planes: Planes
) -> dict[str, float]:
    """Return the argument words for planes of an edge's output, or rows of them."""
    source, target = build.value(edge.source), build.maps.contributions[edge.name]
    first_z, _, first_y, _ = target.box(*planes)
    return {
        **rows_of(source, "source", batch, block, 0),
        **rows_of(target, "target", batch, block, planes.low, planes.first),
        **counts(target, *planes),
        "first_plane": first_z,
        "first_row": first_y,
        "width": target.shape[2],
        **_window(build, edge, source),
    }


def backward_words(
    build: Build, edge: Edge, gradient: Tensor, batch: int, block: int, low: int, high: int
) -> dict[str, float]:
    """Return the argument words for planes low..high of an edge's data gradient."""
    target = build.maps.backward[edge.name]
    first_z, _, first_y, _ = target.box(low, high)
    z, y, x = gradient.shape
    return {
        **rows_of(gradient, "gradient", batch, block, 0),
        "outputs_z": z,
        "outputs_y": y,
        "outputs_x": x,
        **rows_of(target, "target", batch, block, low),
        **counts(target, low, high),
        "first_plane": first_z,
        "first_row": first_y,
        "width": target.shape[2],
        **_window(build, edge, target),
    }


def _window(build: Build, edge: Edge, source: Tensor) -> dict[str, float]:
    dilation = build.layout.geometry.dilations[edge.name]
    named = {
        "window": edge.size,
        "stride": edge.stride,
        "dilation": dilation,
        "before": [before for before, _ in sides(edge, dilation)],
        "inputs": source.shape,
    }
    return {
        f"{word}_{axis}": value
        for word, triple in named.items()
        for axis, value in zip("zyx", triple, strict=True)
    }
