"""Activation functions in tasks: the kernel and argument words of each, and the tasks of softmax."""

from __future__ import annotations

from znnpy_kernels.layers import softmax
from znnpy_kernels.layers.activation_functions import ACTIVATIONS
from znnpy_kernels.layers.activation_kernels import Activation
from znnpy_kernels.layers.tied_slopes import repeat_number
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.regions import Region
from znnpy.engine.tasks.fusion import is_tied, repeated_slope
from znnpy.engine.tasks.step import Step, counts, plane_ranges, rows_of
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.errors import NetworkError
from znnpy.layers.activation_functions import function_of
from znnpy.network.types import Node
from znnpy.plan.cost import MEMORY_RATE
from znnpy.registry import resolved


def softmax_forward(step: Step, build: Build, node: Node) -> None:
    """Declare the tasks of bias and softmax over channels, in place."""
    tensor = build.maps.activations[node.name]
    for batch in range(tensor.batch):
        # A task takes all blocks of its planes, since softmax sums over channels: so cuts count all
        # blocks.
        for low, high in plane_ranges(tensor, 4 * tensor.blocks):
            step.add(
                softmax.softmax_forward,
                {
                    **rows_of(tensor, "source", batch, 0, low),
                    **rows_of(tensor, "target", batch, 0, low),
                    **counts(tensor, low, high),
                    "source_block": tensor.block_stride,
                    "target_block": tensor.block_stride,
                    # Behind a norm the bias is in its coefficients already.
                    "bias": 0 if node.norm else build.bias_address(node.name, 0),
                    "channels": tensor.channels,
                    "width": tensor.shape[2],
                },
                what=Identity(node.name, Pass.FORWARD, Part.FUNCTION),
                cost=tensor.plane * (high - low) * tensor.blocks * 16 / MEMORY_RATE,
                reads=[*tensor.regions(batch, low, high), *build.bias_reads(node.name)],
                writes=tensor.regions(batch, low, high),
            )


def softmax_backward(step: Step, build: Build, node: Node) -> None:
    """Declare the tasks that turn the gradient by the softmax's values into that by its logits, in place."""
    output, target = build.maps.activations[node.name], build.maps.gradients[node.name]
    for batch in range(target.batch):
        for low, high in plane_ranges(target, 6 * target.blocks):
            step.add(
                softmax.softmax_backward,
                {
                    **rows_of(output, "output", batch, 0, low),
                    **rows_of(target, "gradient", batch, 0, low),
                    **rows_of(target, "target", batch, 0, low),
                    **counts(target, low, high),
                    "output_block": output.block_stride,
                    "gradient_block": target.block_stride,
                    "target_block": target.block_stride,
                    "channels": target.channels,
                    "width": target.shape[2],
                },
                what=Identity(node.name, Pass.BACKWARD, Part.FUNCTION),
                cost=target.plane * (high - low) * target.blocks * 24 / MEMORY_RATE,
                reads=output.regions(batch, low, high) + target.regions(batch, low, high),
                writes=target.regions(batch, low, high),
            )


def shape_words(build: Build, node: Node, block: int) -> dict[str, float]:
    """Return the argument words that shape a node's function, for one channel block."""
    return {
        "slope": node.slope,
        "amplitude": node.amplitude,
        "gain": node.gain,
        "slopes": _slopes(build, node, block),
    }


def _slopes(build: Build, node: Node, block: int) -> int:
    if node.tied:
        return repeated_slope(build, node).address
    return build.values_address(f"{node.name}.slopes", LANES * block)


def repeat_slope(step: Step, build: Build, node: Node) -> None:
    """Declare the task that repeats a tied slope, of nodes that have one, for kernels that read one for each lane."""
    if not is_tied(node):
        return
    name, target = f"{node.name}.slopes", repeated_slope(build, node)
    step.add(
        repeat_number,
        {"source": build.values_address(name, 0), "target": target.address},
        what=Identity(node.name, Pass.FORWARD, Part.SLOPE),
        cost=LANES * 4 / MEMORY_RATE,
        reads=build.values_read(name),
        writes=[target.region()],
    )


def slopes_read(build: Build, node: Node) -> list[Region]:
    """Return the regions that a task reads if it uses `shape_words`."""
    if node.tied:
        return [repeated_slope(build, node).region()]
    return build.values_read(f"{node.name}.slopes")


def kernels_of(function: str, node: Node) -> Activation:
    """Return the kernels of a node's function; NetworkError for a function that only float64 has."""
    # Entries from outside of the package bring kernels of their own, and come first.
    found: Activation | None = resolved(function_of(function).kernels) or ACTIVATIONS.get(function)
    if found is None:
        behind = " behind a norm" if node.norm else ""
        what = f"node '{node.name}': {function} has no kernel{behind} in float32"
        raise NetworkError(f"{what}; precision float64 runs it")
    return found
