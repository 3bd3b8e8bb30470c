"""Tasks of depth_to_space edges: channels become voxels, and gradients of voxels those of channels."""

from __future__ import annotations

from math import prod

from znnpy_kernels.layers.depth_to_space import to_depth, to_space
from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network.types import Edge
from znnpy.plan import ranges
from znnpy.plan.cost import MEMORY_RATE

NUMBER_SECONDS = 1e-9
"""Estimated cost of a number, which is copied by itself."""


def forward(step: Step, build: Build, edge: Edge) -> None:
    """Declare the tasks that write an edge's output."""
    small, large = build.value(edge.source), build.maps.contributions[edge.name]
    what, each = Identity(edge.name, Pass.FORWARD, Part.GROWTH), prod(edge.factor)
    for block in range(large.blocks):
        # As many channels of the source, which fill as many whole blocks; the last of them may be fewer.
        read = range(block * each, min((block + 1) * each, small.blocks))
        _add(step, to_space, edge, what, (small, large), large, block, (small, read))


def backward(step: Step, build: Build, edge: Edge, gradient: Tensor) -> None:
    """Declare the tasks of the data gradient."""
    small = build.maps.backward[edge.name]
    what, each = Identity(edge.name, Pass.BACKWARD, Part.GROWTH), prod(edge.factor)
    for block in range(small.blocks):
        last = min((block + 1) * LANES, small.channels) - 1
        read = range(block * LANES // each // LANES, last // each // LANES + 1)
        _add(step, to_depth, edge, what, (small, gradient), small, block, (gradient, read))


def _add(
    step: Step,
    kernel: Kernel,
    edge: Edge,
    what: Identity,
    ends: tuple[Tensor, Tensor],
    target: Tensor,
    block: int,
    seen: tuple[Tensor, range],
) -> None:
    """Declare the tasks that write one block of the target, from blocks `seen` of the other tensor."""
    (small, large), (source, blocks) = ends, seen
    factor = edge.factor[large.cut]
    seconds = target.plane * target.extent * max(NUMBER_SECONDS, 8 / MEMORY_RATE)
    words = {f"factor_{axis}": n for axis, n in zip("zyx", edge.factor, strict=True)}
    words |= {"channels": target.channels, "block": block, "width": target.shape[2]}
    for batch in range(target.batch):
        ends_words = _place("small", small, batch) | _place("large", large, batch)
        for low, high in ranges(small.extent, seconds):
            both = {id(small): (low, high), id(large): (low * factor, high * factor)}
            z0, z1, y0, y1 = target.box(*both[id(target)])
            step.add(
                kernel,
                {**words, **ends_words, "z0": z0, "z1": z1, "y0": y0, "y1": y1},
                what=what,
                cost=seconds * (high - low) / small.extent,
                reads=[source.region(batch, it, *both[id(source)]) for it in blocks],
                writes=[target.region(batch, block, *both[id(target)])],
            )


def _place(name: str, tensor: Tensor, batch: int) -> dict[str, int]:
    return {
        name: tensor.at(batch),
        f"{name}_block": tensor.block_stride,
        f"{name}_z": tensor.z_stride,
        f"{name}_y": tensor.y_stride,
    }
