"""Tasks of upsampling (upsample edges), forward and backward."""

from __future__ import annotations

from znnpy_kernels.layers.upsampling import upsample_backward, upsample_forward
from znnpy_kernels.machine.abi import Kernel

from znnpy.engine.layers import resizing
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.tensors import Planes, Tensor
from znnpy.engine.tasks.step import Step, by_rows, floats_of
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network.types import Edge
from znnpy.plan import Grain, ranges
from znnpy.plan.cost import MEMORY_RATE


def forward(step: Step, build: Build, edge: Edge) -> None:
    """Declare the tasks that upsample an edge's source."""
    if edge.mode == "corners":
        resizing.forward(step, build, edge)
        return
    small, large = build.value(edge.source), build.maps.contributions[edge.name]
    cut, what = large.cut, Identity(edge.name, Pass.FORWARD, Part.GROWTH)
    along, across = edge.factor[cut], edge.factor[1 - cut]
    # Linear weights reach to the neighbours on both sides.
    reach, made = int(edge.mode == "linear"), list[Planes]()
    for low, high, first, last in _parts(small, large, build.layout.grain):
        seen = Planes(max(low - reach, 0), min(high + reach, small.extent))
        if last is not None:
            seen = Planes(*seen[:2], max(first - reach, 0), min(last + reach, small.rows))
        own = Planes(low * along, high * along, first * across, last and last * across)
        made.append(own)
        _add(step, upsample_forward, edge, what, (small, large), (large, own), (small, seen))
    step.note_cut(large, made)


def backward(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Declare the tasks of the data gradient: each source voxel sums the voxels made from it."""
    if edge.mode == "corners":
        resizing.backward(step, build, edge, gradient)
        return
    small, factor = build.maps.backward[edge.name], edge.factor[gradient.cut]
    for low, high in _planes(small, gradient):
        # A small voxel is part of 2 f or 2 f - 1 large ones: half a factor beyond its own on each
        # side.
        more = factor // 2 if edge.mode == "linear" else 0
        seen = max(low * factor - more, 0), min(high * factor + more, gradient.extent)
        what = Identity(edge.name, Pass.BACKWARD, Part.GROWTH)
        ends = (small, gradient)
        own = Planes(low, high), Planes(*seen)
        _add(step, upsample_backward, edge, what, ends, (small, own[0]), (gradient, own[1]))


def _planes(small: Tensor, large: Tensor) -> list[tuple[int, int]]:
    """Return ranges of planes of the smaller feature map; the larger one is cut at the same places."""
    return ranges(small.extent, _seconds(small, large))


def _parts(small: Tensor, large: Tensor, grain: Grain) -> list[Planes]:
    """Return parts of the smaller feature map, of planes or rows of them, where the larger one is cut as well."""
    seconds = _seconds(small, large)
    return by_rows(small, grain.ranges(small.extent, seconds), seconds, grain)


def _seconds(small: Tensor, large: Tensor) -> float:
    # Of a whole block, which reads and writes both feature maps once.
    return 4 * (_floats(small) + _floats(large)) / MEMORY_RATE


def _floats(tensor: Tensor) -> int:
    """Return the floats of one channel block."""
    return tensor.shape[0] * tensor.shape[1] * tensor.row


def _add(
    step: Step,
    kernel: Kernel,
    edge: Edge,
    what: Identity,
    ends: tuple[Tensor, Tensor],
    made: tuple[Tensor, Planes],
    seen: tuple[Tensor, Planes],
) -> None:
    """Declare a task for each block, which computes planes `made` of one tensor from planes `seen` of the other."""
    (small, large), (target, planes), (source, read) = ends, made, seen
    z0, z1, y0, y1 = target.box(*planes)
    words = {f"size_{axis}": size for axis, size in zip("zyx", small.shape, strict=True)}
    words |= {f"factor_{axis}": factor for axis, factor in zip("zyx", edge.factor, strict=True)}
    words |= {"linear": int(edge.mode == "linear"), "z0": z0, "z1": z1, "y0": y0, "y1": y1}
    share = floats_of(target, planes) / (target.plane * target.extent)
    for batch in range(small.batch):
        for block in range(small.blocks):
            step.add(
                kernel,
                {
                    **words,
                    **_whole(small, "small", batch, block),
                    **_whole(large, "large", batch, block),
                },
                what=what,
                cost=share * _seconds(small, large),
                reads=source.met(batch, block, *read),
                writes=target.met(batch, block, *planes),
            )


def _whole(tensor: Tensor, prefix: str, batch: int, block: int) -> dict[str, int]:
    return {
        prefix: tensor.at(batch, block),
        f"{prefix}_z": tensor.z_stride,
        f"{prefix}_y": tensor.y_stride,
    }
