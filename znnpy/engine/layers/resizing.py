"""Tasks of resizing (resize edges, and upsampling between corners), forward and backward."""

from __future__ import annotations

from znnpy_kernels.layers.resizing import WAYS, resize_backward, resize_forward
from znnpy_kernels.machine.abi import Kernel

from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.step import Step, plane_ranges
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.layers.resizing import Places, taken
from znnpy.network.types import Edge
from znnpy.plan.cost import MEMORY_RATE


def forward(step: Step, build: Build, edge: Edge) -> None:
    """Declare the tasks that resize an edge's source."""
    old, new = build.value(edge.source), build.maps.contributions[edge.name]
    first, last = _taken(edge, old, new)
    what = Identity(edge.name, Pass.FORWARD, Part.GROWTH)
    for low, high in plane_ranges(new, 1):
        seen = int(first[low]), int(last[high - 1]) + 1
        _add(step, resize_forward, edge, what, (old, new), (new, (low, high)), (old, seen))


def backward(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Declare the tasks of the data gradient: each old voxel sums what new ones took of it."""
    old = build.maps.backward[edge.name]
    first, last = _taken(edge, old, gradient)
    what = Identity(edge.name, Pass.BACKWARD, Part.GROWTH)
    for low, high in plane_ranges(old, 1):
        takers = ((last >= low) & (first < high)).nonzero()[0]
        seen = (int(takers[0]), int(takers[-1]) + 1) if takers.size else (0, 0)
        ends = (old, gradient)
        _add(step, resize_backward, edge, what, ends, (old, (low, high)), (gradient, seen))


def _taken(edge: Edge, old: Tensor, new: Tensor) -> tuple[Places, Places]:
    """Return the first and the last plane that each new one takes, along the axis that tasks cut."""
    first, last, _ = taken(old.extent, new.extent, edge.mode)
    return first, last


def _add(
    step: Step,
    kernel: Kernel,
    edge: Edge,
    what: Identity,
    ends: tuple[Tensor, Tensor],
    made: tuple[Tensor, tuple[int, int]],
    seen: tuple[Tensor, tuple[int, int]],
) -> None:
    """Declare a task for each block, which computes planes `made` of one tensor from planes `seen` of the other."""
    (old, new), (target, planes), (source, read) = ends, made, seen
    z0, z1, y0, y1 = target.box(*planes)
    words = {f"size_{axis}": size for axis, size in zip("zyx", old.shape, strict=True)}
    words |= {f"made_{axis}": size for axis, size in zip("zyx", new.shape, strict=True)}
    words |= {"way": WAYS[edge.mode], "z0": z0, "z1": z1, "y0": y0, "y1": y1}
    floats = target.plane * (planes[1] - planes[0]) + source.plane * (read[1] - read[0])
    for batch in range(old.batch):
        for block in range(old.blocks):
            step.add(
                kernel,
                {**words, **_whole(old, "old", batch, block), **_whole(new, "new", batch, block)},
                what=what,
                cost=4 * floats / MEMORY_RATE,
                reads=[source.region(batch, block, *read)] if read[1] else [],
                writes=[target.region(batch, block, *planes)],
            )


def _whole(tensor: Tensor, prefix: str, batch: int, block: int) -> dict[str, int]:
    return {
        prefix: tensor.at(batch, block),
        f"{prefix}_z": tensor.z_stride,
        f"{prefix}_y": tensor.y_stride,
    }
