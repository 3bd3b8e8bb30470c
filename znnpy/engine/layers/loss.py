"""Tasks of the loss: the gradient of each output node, and the sums that become loss and error of the step.

Means over voxels (square, cross-entropies, focal) take one pass. Losses of overlap (Dice) first need sums over whole
samples, from which the loss and the slopes of each channel follow. MALIS first sorts its edges and counts the pairs of
voxels that each decides on, which become the weights of its mean.
"""

from __future__ import annotations

from typing import NamedTuple

from znnpy_kernels.layers.dice import SUMS, overlap_total
from znnpy_kernels.layers.losses import sum_partials
from znnpy_kernels.layers.malis import DIGITS, malis_order, malis_shares
from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.layers.loss_arguments import Leaf, Parts, joined
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.regions import SMALL, Buffer, Name, Region, Use
from znnpy.engine.tasks.bias_gradients import left_behind, sum_bias
from znnpy.engine.tasks.dependencies import loss_group
from znnpy.engine.tasks.fusion import finished_in_loss, slope_of
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.learning.loss import Objective
from znnpy.network.types import Node
from znnpy.plan.cost import MEMORY_RATE
from znnpy.registry import resolved

OVERLAP_PARTIALS = Use("partial overlaps", SMALL)
SLOPES = Use("slopes of overlaps", SMALL)

ORDERS = Use("orders of edges", "edges of losses")
SORTING = Use("edges as they are sorted", "edges of losses")
SHARES = Use("shares of pairs", "edges of losses")
COUNTS = Use("counts of edges", SMALL)
# Only orders tasks: one task a sample sorts all of its edges, so nothing is cut by it.
PASSES = 60  # about what sorting and joining cost, in passes over the memory of a sample's edges
LOSS_PARTIALS = Use("partial losses", SMALL)


def _kernels(objective: Objective) -> tuple[Kernel | None, Kernel]:
    """Return the kernel of the sums that come first, if there are any, and that of the gradient."""
    found = objective.kernel
    assert found  # others are refused before
    return resolved(found.sums), resolved(found.gradient)


def emit_loss(step: Step, build: Build, node: Node, objective: Objective) -> None:
    """Declare the loss of an output node: its gradient, partial sums, and their sum in the step's results."""
    parts = Parts.of(build, node, objective)
    group = loss_group(build.parity)
    # A kernel for sums that come first marks losses of overlap.
    if _kernels(objective)[0]:
        emit_overlap(step, build, parts, group)
    else:
        _emit_mean(step, build, parts, group)


def _emit_mean(step: Step, build: Build, parts: Parts, group: int) -> None:
    """Declare a mean over voxels: its total weight is known beforehand, so one pass gives loss and gradient."""
    node, staged = parts.node, build.staged
    # What the loss is writing becomes the gradient by an output's sum in passing, and that of its
    # bias: no pass of their own.
    biases = _bias_partials(build, parts)
    _, kernel = _kernels(parts.objective)
    # MALIS: the weights of its mean are found first.
    pairs = parts.objective.kernel and parts.objective.kernel.pairs
    weighed = emit_shares(step, build, parts) if pairs else None
    numbers = parts.objective.numbers
    own = {name: value for name, value in numbers.items() if name in kernel.fields}
    # Two float64 for each leaf: loss and error.
    partials = build.scratch(Name(LOSS_PARTIALS, node.name), 4 * parts.count)
    for leaf in parts.leaves:
        step.add(
            kernel,
            {
                **joined({**parts.words(leaf), **parts.gradient_words(leaf)}),
                **own,
                **({"places": weighed[leaf.batch].places} if weighed else {}),
                "partial": partials.address + 16 * leaf.number,
                "bias_gradient": biases.address + 4 * parts.width * leaf.number if biases else 0,
                "bias_block": LANES,
                "relu_slope": slope_of(node) if finished_in_loss(node, parts.objective) else 1.0,
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
        # A guess: some additions and divisions of one task; only its order counts.
        cost=1e-6,
        reads=[partials.region(0, parts.count), staged.given.region()],
        writes=[staged.results[node.name].region()],
        group=group,
    )


def _bias_partials(build: Build, parts: Parts) -> Buffer | None:
    if parts.gradient is None or not finished_in_loss(parts.node, parts.objective):
        return None
    return build.bias_partials(parts.node, 0, parts.count * parts.width // LANES)


def emit_overlap(step: Step, build: Build, parts: Parts, group: int) -> None:
    """Declare a loss of overlap: sums of each part, one task that adds them up, and the gradient."""
    channels, name = parts.output.channels, parts.node.name
    # Float64: sums of the cross-entropy and of wrong voxels, then I, P and T of each channel
    # (`znnpy_kernels/layers/dice.py`).
    entries = 2 + SUMS * channels
    partials = build.scratch(Name(OVERLAP_PARTIALS, name), 2 * entries * parts.count)
    slopes = build.scratch(Name(SLOPES, name), 2 * channels * parts.output.batch)
    entropy = parts.objective.numbers["entropy"]
    sums, gradient = _kernels(parts.objective)
    assert sums
    for leaf in parts.leaves:
        step.add(
            sums,
            {
                **joined(parts.words(leaf)),
                "partial": partials.address + 8 * entries * leaf.number,
                "slopes": 0,
                "entropy": entropy,
            },
            what=Identity(name, Pass.LOSS, Part.LOSS),
            cost=parts.cost,
            reads=[*parts.read(leaf), build.staged.given.region()],
            writes=[partials.region(leaf.number, leaf.number + 1)],
        )
    _emit_total(step, build, parts, partials, slopes, group)
    # Nothing before the output learns: loss and error are wanted all the same.
    for leaf in parts.leaves if parts.gradient else ():
        step.add(
            gradient,
            {
                **joined({**parts.words(leaf), **parts.gradient_words(leaf)}),
                "slopes": slopes.address + 8 * channels * leaf.batch,
                "entropy": entropy,
            },
            what=Identity(name, Pass.LOSS, Part.LOSS),
            cost=parts.cost,
            reads=[*parts.read(leaf), build.staged.given.region(), slopes.region()],
            writes=parts.written(leaf),
            # They read targets, which may lie where their owner changes them once the loss is known.
            group=group,
        )


def _emit_total(
    step: Step, build: Build, parts: Parts, partials: Buffer, slopes: Buffer, group: int
) -> None:
    name, staged, batch = parts.node.name, build.staged, parts.output.batch
    # Sums of overlap do not add up over microbatches as means by weights do: each has a loss of its
    # own.
    factor = parts.objective.factor / build.layout.microbatches  # the mean over microbatches
    step.add(
        overlap_total,
        {
            **parts.objective.numbers,
            "overlap": factor * parts.objective.numbers["overlap"],
            "partials": partials.address,
            "count": parts.count // batch,
            "batch": batch,
            "channels": parts.output.channels,
            "classes": staged.classes[name],
            "normaliser": staged.normalizers[name],
            "slopes": slopes.address,
            "target": staged.results[name].address,
        },
        what=Identity(name, Pass.LOSS, Part.LOSS_SUM),
        cost=1e-6,
        reads=[partials.region(0, parts.count), staged.given.region()],
        writes=[staged.results[name].region(), slopes.region()],
        group=group,
    )


class Weighed(NamedTuple):
    """The address of a sample's two places, of target and weight, and the regions that its loss then reads."""

    places: int
    regions: tuple[Region, Region]


def emit_shares(step: Step, build: Build, parts: Parts) -> list[Weighed]:
    """Declare the tasks that compute the weights of MALIS, the share of pairs of each edge; return them by sample."""
    output, name = parts.output, parts.node.name
    edges = output.channels * output.shape[0] * output.shape[1] * output.shape[2]
    shares = build.shared(Name(SHARES, name), edges * output.batch)
    return [_emit_sample(step, build, parts, shares, edges, b) for b in range(output.batch)]


def _emit_sample(
    step: Step, build: Build, parts: Parts, shares: Buffer, edges: int, batch: int
) -> Weighed:
    name, staged = parts.node.name, build.staged
    order = build.shared(Name(ORDERS, name, (batch,)), edges)
    # Room for the keys and counts of digits of `malis_order`, and then for the union-find of
    # `malis_shares`.
    sorting = build.shared(Name(SORTING, name, (batch,)), 3 * edges + 2 * DIGITS + 4)
    # Eight bytes each.
    counts = build.scratch(Name(COUNTS, name, (batch,)), 6)  # one count, and two places
    words = parts.words(Leaf(0, batch, 0, parts.output.extent))
    cost = PASSES * 4 * edges / MEMORY_RATE
    what = Identity(name, Pass.LOSS, Part.LOSS)
    common = {"order": order.address, "count": counts.address, "scratch": sorting.address}
    common["offsets"] = staged.tables[name]
    given = {**words, **common, "positive": parts.objective.numbers["positive"]}
    given |= {"shares": shares.address + 4 * edges * batch, "base": shares.address}
    given["given"] = counts.address + 8
    read = parts.output.regions(batch, 0, parts.output.extent)
    step.add(
        malis_order,
        {word: given[word] for word in malis_order.fields},
        what=what,
        cost=cost,
        reads=[*read, staged.given.region()],
        writes=[order.region(), sorting.region(), counts.region(0, 1)],
    )
    step.add(
        malis_shares,
        {word: given[word] for word in malis_shares.fields},
        what=what,
        cost=cost,
        reads=[order.region(), counts.region(0, 1), staged.given.region()],
        writes=[
            sorting.region(),
            *(regions := (counts.region(1, 2), shares.region(batch, batch + 1))),
        ],
    )
    return Weighed(counts.address + 8, regions)
