"""Tasks of batch, instance, group and layer normalisation, forward and backward, and of running statistics.

Tasks leave statistics of their planes of a channel block; small tasks merge them, in fixed order, into coefficients
by which the pass of the activation function normalises what it reads. Backward does the same with sums of gradients.
So feature maps are read twice forward and twice backward, and written once in each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from znnpy_kernels.layers import normalization_statistics
from znnpy_kernels.layers.response_normalization import response_gradients, response_statistics
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.layers.activation import kernels_of, shape_words, slopes_read
from znnpy.engine.layers.normalization_tables import CHANNEL_SECONDS, DOUBLE, Normed, Table
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.regions import SMALL, Name, Region, Use
from znnpy.engine.memory.tensors import Planes, Tensor
from znnpy.engine.tasks.step import (
    Step,
    counts,
    floats_of,
    plane_parts,
    plane_ranges,
    rows_of,
    shares_of,
)
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network.types import Node, Norm
from znnpy.plan.cost import MEMORY_RATE

LEAVES = Use("partial statistics", SMALL)
GRADIENT_LEAVES = Use("partial gradients of statistics", SMALL)
GRADIENT_COEFFICIENTS = Use("coefficients of gradients", SMALL)
CHANNEL_GRADIENTS = Use("gradients of statistics", SMALL)

Share = tuple[int, range, Planes]
"""What a task takes: an item of the batch, blocks, planes."""


def _cost(tensor: Tensor, planes: Planes, operands: int) -> float:
    return floats_of(tensor, planes) * 4 * operands / MEMORY_RATE


def _leaves(tensor: Tensor, operands: int) -> list[Planes]:
    """Return the planes of a block of which each task leaves sums behind."""
    return [Planes(*cut) for cut in plane_ranges(tensor, operands)]


def emit_statistics(step: Step, build: Build, node: Node) -> None:
    """Declare the tasks that compute a normalisation's coefficients, from the sum or from running statistics."""
    normed = Normed.of(build, node)
    # `dropping` marks updates: predictions of a model that trains use running statistics as well.
    if normed.norm.running and not (build.layout.training and build.dropping):
        _from_running(step, build, normed)
    else:
        _from_sums(step, build, normed)


def _from_running(step: Step, build: Build, normed: Normed) -> None:
    names = {
        "mean": normed.kept("running_mean"),
        "variance": normed.kept("running_variance"),
        "bias": normed.node.name,
        "scale": normed.kept("scale"),
        "shift": normed.kept("shift"),
    }
    step.add(
        normalization_statistics.running_coefficients,
        {word: build.values_address(name, 0) for word, name in names.items()}
        | {
            "epsilon": normed.norm.epsilon,
            "coefficients": normed.coefficients.at(0, 0),
            "channels": normed.node.channels,
        },
        what=Identity(normed.node.name, Pass.FORWARD, Part.MERGED),
        cost=CHANNEL_SECONDS * normed.node.channels,
        reads=build.values_read(*names.values()),
        writes=normed.coefficients.regions(1, range(normed.summed.blocks)),
    )


def _from_sums(step: Step, build: Build, normed: Normed) -> None:
    summed = normed.summed
    own = _leaves(summed, 1)
    cuts = len(own)
    leaves = normed.table(LEAVES, summed.batch, DOUBLE * normalization_statistics.LEAF * cuts)
    places = {planes: index for index, planes in enumerate(own)}
    for batch, blocks, planes in shares_of(summed, own, 1, build.layout.grain):
        _leave(step, normed, leaves, batch, blocks, planes, places[planes])
    # Merged in the order of the parts (Chan's rule): bits depend on the shapes alone.
    for unit in normed.units(cuts):
        _merge(step, build, normed, leaves, unit, cuts)


def _leave(
    step: Step,
    normed: Normed,
    leaves: Table,
    batch: int,
    blocks: range,
    planes: Planes,
    index: int,
) -> None:
    """Declare the task that leaves the statistics of a part, of which it is that number, of some blocks."""
    summed = normed.summed

    def words(block: int) -> dict[str, int]:
        return {
            **rows_of(summed, "source", batch, block, planes.low, planes.first),
            **counts(summed, *planes),
            "leaf": leaves.at(batch, block) + 8 * normalization_statistics.LEAF * index,
            "length": summed.row,
        }

    step.add_each(
        normalization_statistics.lane_statistics,
        blocks,
        words,
        what=Identity(normed.node.name, Pass.FORWARD, Part.STATISTICS),
        cost=_cost(summed, planes, 1),
        reads=lambda block: summed.met(batch, block, *planes),
        writes=lambda block: [_part(leaves, batch, block, index)],
    )


def _part(leaves: Table, batch: int, block: int, index: int) -> Region:
    """Return the region of one part's statistics in the entry of its block."""
    return leaves.buffer.region(index, index + 1, section=batch * leaves.blocks + block)


def _left(leaves: Table, batch: int, unit: range, cuts: int) -> list[Region]:
    """Return the regions of all parts' statistics of some blocks."""
    return [
        leaves.buffer.region(0, cuts, section=item * leaves.blocks + block)
        for item in range(batch)
        for block in unit
    ]


def _merge(step: Step, build: Build, normed: Normed, leaves: Table, unit: range, cuts: int) -> None:
    # Bias, scale and shift go into the coefficients, so that the pass over voxels knows of none.
    names = (normed.node.name, normed.kept("scale"), normed.kept("shift"))
    coefficients, batch = normed.coefficients, normed.summed.batch
    merged = normalization_statistics.merged_statistics
    step.add(
        response_statistics if normed.norm.adds else merged,
        {
            **normed.table_words(leaves, unit, cuts),
            "coefficients": coefficients.at(0, unit.start),
            "coefficients_step": 4 * coefficients.entry * coefficients.blocks,
            "shift": build.values_address(normed.kept("shift"), LANES * unit.start),
            "epsilon": normed.norm.epsilon,
        },
        what=Identity(normed.node.name, Pass.FORWARD, Part.MERGED),
        cost=CHANNEL_SECONDS * normed.channels(unit) * batch * cuts,
        reads=[*_left(leaves, batch, unit, cuts), *build.values_read(*names)],
        writes=[
            *coefficients.regions(normed.samples, unit),
            *normed.moments.regions(normed.samples, unit),
        ],
    )


def norm_backward(step: Step, build: Build, node: Node) -> None:
    """Declare the tasks that turn the gradient by a node's values into that by its sum, in place.

    They also compute the gradients of scale, shift and bias.
    """
    normed, gradient = Normed.of(build, node), build.maps.gradients[node.name]
    # The sums' pass reads two operands; the pass that writes gradients has cuts of its own, as
    # nothing is summed there.
    own = _leaves(gradient, 2)
    cuts = len(own)
    leaves = normed.table(
        GRADIENT_LEAVES, gradient.batch, DOUBLE * normalization_statistics.SUMS * cuts
    )
    back = normed.table(
        GRADIENT_COEFFICIENTS, normed.samples, normalization_statistics.COEFFICIENTS
    )
    places = {planes: index for index, planes in enumerate(own)}
    grain = build.layout.grain
    for batch, blocks, planes in shares_of(gradient, own, 2, grain):
        _sums_back(step, normed, gradient, leaves, (batch, blocks, planes), places[planes])
    for unit in normed.units(cuts):
        _merge_gradients(step, build, normed, leaves, back, unit, cuts)
    for where in shares_of(gradient, plane_parts(gradient, 3, grain), 3, grain):
        _gradients_back(step, normed, gradient, back, where)


def _sums_back(
    step: Step, normed: Normed, gradient: Tensor, leaves: Table, where: Share, index: int
) -> None:
    """Declare the task that leaves the sums of gradients of a part, of which it is that number, of some blocks."""
    batch, _, _ = where

    def words(block: int) -> dict[str, int]:
        return {"sums": leaves.at(batch, block) + 8 * normalization_statistics.SUMS * index}

    _way_back(
        step, normed, gradient, where, Part.STATISTICS, words,
        reads=lambda _: [], writes=lambda block: [_part(leaves, batch, block, index)],
    )  # fmt: skip


def _gradients_back(
    step: Step, normed: Normed, gradient: Tensor, back: Table, where: Share
) -> None:
    """Declare the task that turns gradients into those by the sum, in place, in a part of some blocks."""
    batch, _, planes = where
    sample = normed.sample(batch)

    def words(block: int) -> dict[str, int]:
        target = rows_of(gradient, "target", batch, block, planes.low, planes.first)
        return {**target, "back": back.at(sample, block)}

    _way_back(
        step, normed, gradient, where, Part.FUNCTION, words,
        reads=lambda block: [back.region(sample, block)],
        writes=lambda block: gradient.met(batch, block, *planes),
    )  # fmt: skip


def _way_back(
    step: Step,
    normed: Normed,
    gradient: Tensor,
    where: Share,
    part: Part,
    words: Callable[[int], Mapping[str, int]],
    *,
    reads: Callable[[int], Iterable[Region]],
    writes: Callable[[int], Iterable[Region]],
) -> None:
    """Declare one of the two passes over a part of some blocks; `words`, `reads`: its own, beside those of both."""
    (batch, blocks, planes), node, summed = where, normed.node, normed.summed
    function = "linear" if node.function == "softmax" else node.function
    none = dict.fromkeys(("target", "target_z", "target_y", "back", "sums"), 0)
    slopes = slopes_read(normed.build, node)

    def all_words(block: int) -> dict[str, float]:
        return {
            **rows_of(summed, "summed", batch, block, planes.low, planes.first),
            **rows_of(gradient, "gradient", batch, block, planes.low, planes.first),
            **counts(gradient, *planes),
            "coefficients": normed.coefficients.at(normed.sample(batch), block),
            "length": gradient.row,
            **shape_words(normed.build, node, block),
            **none,
            **words(block),
        }

    step.add_each(
        kernels_of(function, node).normed,
        blocks,
        all_words,
        what=Identity(node.name, Pass.BACKWARD, part),
        cost=_cost(gradient, planes, 3 if part is Part.FUNCTION else 2),
        reads=lambda block: [
            *summed.met(batch, block, *planes),
            *gradient.met(batch, block, *planes),
            normed.affine_reads(batch, block),
            *slopes,
            *reads(block),
        ],
        writes=writes,
    )


def _merge_gradients(
    step: Step,
    build: Build,
    normed: Normed,
    leaves: Table,
    back: Table,
    unit: range,
    cuts: int,
) -> None:
    node, (depth, height, width) = normed.node, normed.summed.shape
    # Sums of scale, shift and bias of the unit's channels in float64, before they are rounded into
    # the gradients.
    found = build.scratch(
        Name(CHANNEL_GRADIENTS, node.name, (unit.start,)), 3 * DOUBLE * LANES * len(unit)
    )
    names = {"bias": node.name, "scale": normed.kept("scale"), "shift": normed.kept("shift")}
    known = {word: build.parameters[name] for word, name in names.items() if build.learns(name)}
    addresses = {word: it.gradient + 4 * LANES * unit.start for word, it in known.items()}
    batch = normed.summed.batch
    merged = normalization_statistics.merged_gradients
    step.add(
        response_gradients if normed.norm.adds else merged,
        {
            **normed.table_words(leaves, unit, cuts),
            "coefficients": back.at(0, unit.start),
            "coefficients_step": 4 * back.entry * back.blocks,
            "voxels": depth * height * width,
            "found": found.address,
            **{f"{word}_gradient": addresses.get(word, 0) for word in names},
        },
        what=Identity(node.name, Pass.BACKWARD, Part.MERGED),
        cost=CHANNEL_SECONDS * normed.channels(unit) * batch * cuts,
        reads=[
            *_left(leaves, batch, unit, cuts),
            *normed.moments.regions(normed.samples, unit),
            *build.values_read(normed.kept("scale")),
        ],
        writes=[
            *back.regions(normed.samples, unit),
            *(it.gradient_region(unit.start, unit.stop) for it in known.values()),
            found.region(),
        ],
    )


def move_running(step: Step, build: Build, node: Node, norm: Norm) -> None:
    """Declare the task that moves a node's running statistics towards the mean of all microbatches' statistics."""
    normed = Normed.of(build, node)
    names = [normed.kept("running_mean"), normed.kept("running_variance")]
    kept = build.values_read(*names)
    step.add(
        normalization_statistics.move_running,
        {
            "mean": build.values_address(names[0], 0),
            "variance": build.values_address(names[1], 0),
            "bias": build.values_address(node.name, 0),
            "moments": normed.moments.at(0, 0),
            # Moments were summed over the microbatches of all ranks; running statistics move by
            # their mean.
            "count": build.layout.microbatches,
            "momentum": norm.momentum,
            "channels": node.channels,
        },
        what=Identity(node.name, Pass.UPDATE, Part.RUNNING),
        cost=CHANNEL_SECONDS * node.channels,
        reads=[
            *normed.moments.regions(1, range(normed.summed.blocks)),
            *build.values_read(node.name),
            *kept,
        ],
        writes=kept,
    )
