"""Tasks of the loss: gradients of output nodes, and sums that become loss and error of the step."""

from __future__ import annotations

from znnpy_kernels.layers.losses import LOSSES, sum_partials
from znnpy_kernels.layers.malis import SHARED
from znnpy_kernels.layers.overlap import OVERLAPS
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.layers.loss_words import Parts
from znnpy.engine.layers.malis import emit_shares
from znnpy.engine.layers.overlap import emit_overlap
from znnpy.engine.memory.build import Build
from znnpy.engine.memory.regions import SMALL, Buffer, Name, Use
from znnpy.engine.tasks.biases import left_behind, sum_bias
from znnpy.engine.tasks.fusion import biased_in_loss
from znnpy.engine.tasks.identity import Identity, Part, Pass
from znnpy.engine.tasks.step import Step
from znnpy.errors import NetworkError
from znnpy.learning.loss import Objective
from znnpy.network.outputs import Objectives
from znnpy.network.types import Node

LOSS_PARTIALS = Use("partial losses", SMALL)


def refuse_without_kernel(losses: Objectives) -> None:
    """NetworkError for an output whose loss float64 alone knows."""
    for name, objective in losses.items():
        if objective.kernel not in {**LOSSES, **OVERLAPS}:
            what = f"output {name!r}: loss {objective.loss.name} has no kernel in float32"
            raise NetworkError(f"{what}; precision float64 runs it")


def loss_group(parity: int) -> int:
    """Group of the tasks that end the forward pass and loss of a step."""
    return 2 * parity


def emit_loss(step: Step, build: Build, node: Node, objective: Objective) -> None:
    """Loss of one output node: its gradient, partial sums, and their sum in the step's results."""
    parts = Parts.of(build, node, objective)
    group = loss_group(build.parity)
    if objective.kernel in OVERLAPS:
        emit_overlap(step, build, parts, group)
    else:
        _emit_mean(step, build, parts, group)


def _emit_mean(step: Step, build: Build, parts: Parts, group: int) -> None:
    """A mean over voxels: its weight is known before, so loss and gradient are of one pass."""
    node, staged = parts.node, build.staged
    biases = _bias_partials(build, parts)
    weighed = emit_shares(step, build, parts) if parts.objective.kernel in SHARED else None
    partials = build.scratch(Name(LOSS_PARTIALS, node.name), 4 * parts.count)
    for leaf in parts.leaves:
        step.add(
            LOSSES[parts.objective.kernel],
            {
                **parts.words(leaf),
                **parts.gradient_words(leaf),
                **({"places": weighed[leaf.batch].places} if weighed else {}),
                "partial": partials.address + 16 * leaf.number,
                "bias_gradient": biases.address + 4 * parts.width * leaf.number if biases else 0,
                "bias_block": LANES,
            },
            what=Identity(node.name, Pass.LOSS, Part.LOSS),
            cost=parts.cost,
            reads=[
                *parts.read(leaf),
                staged.given.region(),
                *(weighed[leaf.batch].regions if weighed else ()),
            ],
            writes=[
                *parts.written(leaf),
                partials.region(leaf.number, leaf.number + 1),
                *left_behind(biases, leaf.number),
            ],
        )
    if biases:
        sum_bias(step, build, node, 0, parts.width // LANES, biases, parts.count)
    step.add(
        sum_partials,
        {
            "partials": partials.address,
            "count": parts.count,
            "normaliser": staged.normalizers[node.name],
            "target": staged.results[node.name].address,
        },
        what=Identity(node.name, Pass.LOSS, Part.LOSS_SUM),
        cost=1e-6,
        reads=[partials.region(0, parts.count), staged.given.region()],
        writes=[staged.results[node.name].region()],
        group=group,
    )


def _bias_partials(build: Build, parts: Parts) -> Buffer | None:
    if parts.gradient is None or not biased_in_loss(parts.node, parts.objective):
        return None
    return build.bias_partials(parts.node, 0, parts.count * parts.width // LANES)
