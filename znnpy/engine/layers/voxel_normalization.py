"""Tasks of norms of each voxel over its channels (`channel`, `length`), forward and backward.

A task takes all blocks of its planes. Forward it writes what the function takes, to which the function is applied in
place; backward that is made again where the function's gradient needs it.
"""

from __future__ import annotations

from znnpy_kernels.layers.voxel_normalization import (
    SUMS,
    merged_voxel_gradients,
    voxel_norm_backward,
    voxel_norm_forward,
)
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.layers.activation import kernels_of, shape_words, slopes_read, softmax_forward
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.regions import SMALL, Buffer, Name, Use
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.step import Step, counts, plane_ranges, rows_of
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.layers.activation_functions import function_of
from znnpy.network.types import Node
from znnpy.plan.cost import MEMORY_RATE

VOXEL_SUMS = Use("partial gradients of norms over channels", SMALL)
DOUBLE = 2  # floats of a float64
WORK = 3  # times that blocks are read from a cache, beside memory


def normalise(step: Step, build: Build, node: Node) -> None:
    """Declare the tasks of a node's values: its norm, then its function in place."""
    target = build.maps.activations[node.name]
    _normalise(step, build, node, target, Pass.FORWARD)
    if node.function == "softmax":
        softmax_forward(step, build, node)
    elif node.function != "linear":
        _apply(step, build, node, target)


def denormalise(step: Step, build: Build, node: Node) -> None:
    """Declare the tasks that turn the gradient by a node's values into that by its sum, in place.

    They also compute the gradients of scale, shift and bias. Those of softmax are left to the caller.
    """
    if node.function not in ("linear", "softmax"):
        _apply_gradient(step, build, node)
    gradient = build.maps.gradients[node.name]
    cuts = plane_ranges(gradient, WORK * gradient.blocks)
    entry = DOUBLE * SUMS * gradient.blocks
    parts = gradient.batch * len(cuts)
    sums = build.scratch(Name(VOXEL_SUMS, node.name), entry * parts)
    summed = build.summed(node.name)
    for batch in range(gradient.batch):
        for index, (low, high) in enumerate(cuts):
            part = batch * len(cuts) + index
            step.add(
                voxel_norm_backward,
                {
                    **rows_of(summed, "source", batch, 0, low),
                    **rows_of(gradient, "gradient", batch, 0, low),
                    "source_block": summed.block_stride,
                    "gradient_block": gradient.block_stride,
                    "bias": build.bias_address(node.name, 0),
                    "scale": build.values_address(f"{node.name}.scale", 0),
                    **_shape(node, gradient, low, high),
                    "sums": sums.address + 4 * entry * part,
                },
                what=Identity(node.name, Pass.BACKWARD, Part.NORMALIZED),
                cost=_cost(gradient, low, high, WORK),
                reads=[
                    *summed.regions(batch, low, high),
                    *gradient.regions(batch, low, high),
                    *build.values_read(node.name, f"{node.name}.scale"),
                ],
                writes=[*gradient.regions(batch, low, high), sums.region(part, part + 1)],
            )
    _merge(step, build, node, sums, parts)


def argument(step: Step, build: Build, node: Node) -> Tensor:
    """Declare the tasks that make again what a node's function takes; return where."""
    made = build.argument(node.name)
    if step.once(made.buffer):
        _normalise(step, build, node, made, Pass.BACKWARD)
    return made


def _normalise(step: Step, build: Build, node: Node, target: Tensor, serves: Pass) -> None:
    summed, names = build.summed(node.name), (f"{node.name}.scale", f"{node.name}.shift")
    for batch in range(target.batch):
        for low, high in plane_ranges(target, WORK * target.blocks, build.layout.grain):
            step.add(
                voxel_norm_forward,
                {
                    **rows_of(summed, "source", batch, 0, low),
                    **rows_of(target, "target", batch, 0, low),
                    "source_block": summed.block_stride,
                    "target_block": target.block_stride,
                    "bias": build.bias_address(node.name, 0),
                    "scale": build.values_address(names[0], 0),
                    "shift": build.values_address(names[1], 0),
                    **_shape(node, target, low, high),
                },
                what=Identity(node.name, serves, Part.NORMALIZED),
                cost=_cost(target, low, high, WORK),
                reads=[
                    *summed.regions(batch, low, high),
                    *build.values_read(node.name, *names),
                ],
                writes=target.regions(batch, low, high),
            )


def _shape(node: Node, tensor: Tensor, low: int, high: int) -> dict[str, float]:
    assert node.norm is not None
    return {
        **counts(tensor, low, high),
        "channels": tensor.channels,
        "width": tensor.shape[2],
        "centred": int(node.norm.kind == "channel"),
        "epsilon": node.norm.epsilon,
    }


def _apply(step: Step, build: Build, node: Node, target: Tensor) -> None:
    for batch in range(target.batch):
        for block in range(target.blocks):
            for low, high in plane_ranges(target, 2, build.layout.grain):
                step.add(
                    kernels_of(node.function, node).forward,
                    {
                        **rows_of(target, "source", batch, block, low),
                        **rows_of(target, "target", batch, block, low),
                        **counts(target, low, high),
                        "bias": 0,
                        "affine": 0,
                        "channels": target.block_channels(block),
                        "length": target.row,
                        **shape_words(build, node, block),
                        "planar": 0,
                    },
                    what=Identity(node.name, Pass.FORWARD, Part.FUNCTION),
                    cost=_cost(target, low, high, 2) / target.blocks,
                    reads=[
                        own := target.region(batch, block, low, high),
                        *slopes_read(build, node),
                    ],
                    writes=[own],
                )


def _apply_gradient(step: Step, build: Build, node: Node) -> None:
    gradient = build.maps.gradients[node.name]
    values = build.maps.activations[node.name]
    output = argument(step, build, node) if function_of(node.function).needs_sum else values
    for batch in range(gradient.batch):
        for block in range(gradient.blocks):
            for low, high in plane_ranges(gradient, 3, build.layout.grain):
                own = gradient.region(batch, block, low, high)
                step.add(
                    kernels_of(node.function, node).backward,
                    {
                        **rows_of(output, "output", batch, block, low),
                        **rows_of(gradient, "gradient", batch, block, low),
                        **rows_of(gradient, "target", batch, block, low),
                        **counts(gradient, low, high),
                        "bias_gradient": 0,
                        "channels": gradient.block_channels(block),
                        "length": gradient.row,
                        **shape_words(build, node, block),
                    },
                    what=Identity(node.name, Pass.BACKWARD, Part.FUNCTION),
                    cost=_cost(gradient, low, high, 3) / gradient.blocks,
                    reads=[
                        output.region(batch, block, low, high),
                        own,
                        *slopes_read(build, node),
                    ],
                    writes=[own],
                )


def _merge(step: Step, build: Build, node: Node, sums: Buffer, parts: int) -> None:
    names = {"bias": node.name, "scale": f"{node.name}.scale", "shift": f"{node.name}.shift"}
    known = {word: build.parameters[name] for word, name in names.items() if build.learns(name)}
    if not known:
        return
    addresses = {word: it.gradient for word, it in known.items()}
    step.add(
        merged_voxel_gradients,
        {
            "leaves": sums.address,
            "leaf_step": 8 * SUMS * -(-node.channels // LANES),
            "parts": parts,
            "channels": node.channels,
            **{f"{word}_gradient": addresses.get(word, 0) for word in names},
        },
        what=Identity(node.name, Pass.BACKWARD, Part.MERGED),
        cost=parts * node.channels * 1e-9,
        reads=[sums.region(0, parts)],
        writes=[it.gradient_region() for it in known.values()],
    )


def _cost(tensor: Tensor, low: int, high: int, operands: int) -> float:
    return tensor.plane * (high - low) * tensor.blocks * 4 * operands / MEMORY_RATE
