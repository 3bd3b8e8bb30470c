"""Tasks of the loss: gradients of output nodes, and sums that become loss and error of the step."""

from __future__ import annotations

from znnpy_kernels.layers.losses import LOSSES, sum_partials
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.memory.build import Build
from znnpy.engine.memory.regions import SMALL, Name, Use
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.biases import left_behind, sum_bias
from znnpy.engine.tasks.fusion import biased_in_loss
from znnpy.engine.tasks.identity import Identity, Part, Pass
from znnpy.engine.tasks.step import Step, counts, plane_ranges, rows_of
from znnpy.learning.loss import Objective
from znnpy.network.types import Node
from znnpy.plan.cost import MEMORY_RATE

LOSS_PARTIALS = Use("partial losses", SMALL)


def loss_group(parity: int) -> int:
    """Group of the tasks that end the forward pass and loss of a step."""
    return 2 * parity


def emit_loss(step: Step, build: Build, node: Node, objective: Objective) -> None:
    """Loss of one output node: its gradient, partial sums, and their sum in the step's results."""
    output, gradient = build.images.activations[node.name], build.output_gradient(node)
    staged = build.staged
    cuts = plane_ranges(output, 6 * output.blocks)
    count = len(cuts) * output.batch
    width = -(-output.images // LANES) * LANES
    biased = gradient and biased_in_loss(node, objective)
    biases = build.bias_partials(node, 0, count * width // LANES) if biased else None
    partials = build.scratch(Name(LOSS_PARTIALS, node.name), 4 * count)
    for batch in range(output.batch):
        for index, (low, high) in enumerate(cuts):
            leaf = batch * len(cuts) + index
            step.add(
                LOSSES[objective.kernel],
                {
                    **rows_of(output, "output", batch, 0, low),
                    **_gradient_words(gradient, batch, low),
                    **_planar(output, "target", batch, low),
                    **_planar(output, "weight", batch, low),
                    "places": staged.places[node.name],
                    **counts(output, low, high),
                    "output_block": output.block_stride,
                    "normaliser": staged.normalizers[node.name],
                    "partial": partials.address + 16 * leaf,
                    "channels": output.images,
                    "width": output.shape[2],
                    "lanes": output.lanes,
                    "bias_gradient": biases.address + 4 * width * leaf if biases else 0,
                    "bias_block": LANES,
                },
                what=Identity(node.name, Pass.LOSS, Part.LOSS),
                cost=output.block_stride * output.blocks * 24 / MEMORY_RATE / len(cuts),
                reads=[*output.regions(batch, low, high), staged.given.region()],
                writes=[
                    *(gradient.regions(batch, low, high) if gradient else ()),
                    partials.region(leaf, leaf + 1),
                    *left_behind(biases, leaf),
                ],
            )
    if biases:
        sum_bias(step, build, node, 0, width // LANES, biases, count)
    step.add(
        sum_partials,
        {
            "partials": partials.address,
            "count": count,
            "normaliser": staged.normalizers[node.name],
            "target": staged.results[node.name].address,
        },
        what=Identity(node.name, Pass.LOSS, Part.LOSS_SUM),
        cost=1e-6,
        reads=[partials.region(0, count), staged.given.region()],
        writes=[staged.results[node.name].region()],
        group=loss_group(build.parity),
    )


def _gradient_words(gradient: Tensor | None, batch: int, low: int) -> dict[str, int]:
    """Words of the gradient; address 0 where nothing before the output learns."""
    if gradient is None:
        return dict.fromkeys(("gradient", "gradient_block", "gradient_z", "gradient_y"), 0)
    return {
        **rows_of(gradient, "gradient", batch, 0, low),
        "gradient_block": gradient.block_stride,
    }


def _planar(output: Tensor, prefix: str, batch: int, low: int) -> dict[str, int]:
    """Words of a planar target or weight array of the output's shape: an offset in bytes."""
    depth, height, width = output.shape
    image = depth * height * width
    z, _, y, _ = output.box(low, low + 1)
    return {
        prefix: 4 * (batch * output.images * image + (z * height + y) * width),
        f"{prefix}_image": image,
        f"{prefix}_z": height * width,
        f"{prefix}_y": width,
    }
