"""Tasks of nodes: sum or concatenation of incoming edges, bias and activation function, and their gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, assert_never

from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.simd.rows import copy_channels

from znnpy.engine.convolution.passes import summed_elsewhere
from znnpy.engine.layers import max_pooling
from znnpy.engine.layers.activation import (
    kernels_of,
    shape_words,
    slopes_read,
    softmax_backward,
    softmax_forward,
)
from znnpy.engine.layers.maxout import largest
from znnpy.engine.layers.normalization import emit_statistics, norm_backward
from znnpy.engine.layers.normalization_tables import Normed
from znnpy.engine.layers.prelu import emit_slopes_gradient
from znnpy.engine.layers.product import multiply
from znnpy.engine.layers.voxel_normalization import denormalise, normalise
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.regions import Buffer, Region
from znnpy.engine.memory.tensor_aliases import (
    adds,
    first_back,
    first_of,
    is_first_addend,
    is_passed_back,
    is_passed_on,
    is_read_there,
    keeps_sum,
)
from znnpy.engine.memory.tensors import Planes, Tensor
from znnpy.engine.memory.winners import biased_by_maxima
from znnpy.engine.tasks.bias_gradients import left_behind, sum_bias, sum_planar_bias
from znnpy.engine.tasks.fusion import finished_backward, finished_forward
from znnpy.engine.tasks.step import (
    Step,
    combine_tensors,
    counts,
    floats_of,
    plane_parts,
    plane_ranges,
    rows_of,
    shares_of,
)
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.learning.loss import Objective
from znnpy.network.types import Edge, Node
from znnpy.plan import Grain
from znnpy.plan.cost import MEMORY_RATE


def converge_forward(step: Step, build: Build, node: Node) -> None:
    """Declare the tasks that combine a node's incoming edges, then apply normalisation, bias and function in place."""
    incoming = build.layout.network.incoming(node.name)
    match node.kind:
        case "concat":
            _concatenate(step, build, node)
        case "sum" | "transfer":
            # By FFT converging edges are summed as spectra and have one inverse transform.
            included = summed_elsewhere(build, incoming, "forward")
            left = [edge for edge in incoming if not adds(build.layout, edge)]
            edges = [edge for edge in left if edge.name not in included]
            passed = {edge.name for edge in edges if is_passed_on(build.layout.network, edge)}
            what = Identity(node.name, Pass.FORWARD, Part.SUM)
            begins = [build.value(it.source) for it in edges if is_first_addend(build.layout, it)]
            _converge(
                step, build, edges, first_of(edges), build.maps.contributions, passed, what,
                *begins,
            )  # fmt: skip
        case "max":
            largest(step, build, node)
        case "product":
            multiply(step, build, node)
        case "input":
            return
        case _:
            assert_never(node.kind)
    # A convolution may have applied bias and function in passing.
    if node.norm is not None and node.norm.of_voxels:
        normalise(step, build, node)
    elif node.kind == "transfer" and not finished_forward(build.layout, node):
        if node.norm is not None:
            emit_statistics(step, build, node)
        _transfer_forward(step, build, node)


def converge_backward(step: Step, build: Build, node: Node, objective: Objective | None) -> None:
    """Declare the tasks that sum the data gradients of a node's outgoing edges, then apply the function's gradient.

    `objective`: the loss, if the node is an output.
    """
    outgoing = build.layout.network.outgoing(node.name)
    included = summed_elsewhere(build, outgoing, "gradient")
    edges = [edge for edge in outgoing if edge.name not in included]
    if edges:
        passed = {edge.name for edge in edges if is_passed_back(build.layout.network, edge)}
        what = Identity(node.name, Pass.BACKWARD, Part.SUM)
        first = first_back(build.layout.network, edges)
        _converge(step, build, edges, first, build.maps.backward, passed, what)
    # Before the function's own gradient overwrites, in place, the gradient by its values.
    if build.learns(f"{node.name}.slopes"):
        emit_slopes_gradient(step, build, node, build.summed(node.name))
    if node.norm is not None:
        if node.function == "softmax":
            softmax_backward(step, build, node)
        (denormalise if node.norm.of_voxels else norm_backward)(step, build, node)
    elif node.kind == "transfer":
        # Reserved in any case: whoever makes the bias gradient leaves it there, and buffers must be
        # asked for in one order.
        _partials(build, node)
        if finished_backward(build.layout, node, objective):
            return
        if pooling := biased_by_maxima(build.layout, node):
            max_pooling.bias_gradient(step, build, pooling)
        else:
            _transfer_backward(step, build, node)


def _converge(
    step: Step,
    build: Build,
    edges: Sequence[Edge],
    first: Edge,
    tensors: Mapping[str, Tensor],
    passed: set[str],
    what: Identity,
    begin: Tensor | None = None,
) -> None:
    """Declare the sum of edges' tensors in that of the `first`; those of `passed` edges are others' and only read.

    `begin`: what the first of those is added to, where nobody has filled the first edge's tensor.
    """
    # Tensors of `made` edges belong to this node, so the tree may overwrite them.
    made = [edge for edge in edges if edge is not first and edge.name not in passed]
    # In the order of the network's edges, which is part of what fixes the bits.
    leaves = [tensors[edge.name] for edge in (first, *made)]
    others = [tensors[edge.name] for edge in edges if edge.name in passed]
    combine_tensors(step, leaves, what, build.layout.grain, others, begin)


def _cost(tensor: Tensor, planes: Planes, operands: int) -> float:
    return floats_of(tensor, planes) * 4 * operands / MEMORY_RATE


def _transfer_forward(step: Step, build: Build, node: Node) -> None:
    if node.function == "softmax" and node.norm is None:
        softmax_forward(step, build, node)
        return
    if node.function == "linear" and not node.bias and node.norm is None:
        return
    # Softmax is over channels: the norm's affine part comes first, in a pass of its own, then
    # softmax in place.
    function = "linear" if node.function == "softmax" else node.function
    normed = None if node.norm is None else Normed.of(build, node)
    tensor, summed = build.maps.activations[node.name], build.summed(node.name)
    parts = step.parts(summed, 2, build.layout.grain)
    step.note_cut(tensor, parts)
    for batch, blocks, planes in shares_of(tensor, parts, 2, build.layout.grain):
        _apply(step, build, node, kernels_of(function, node).forward, normed, batch, blocks, planes)
    if node.function == "softmax":
        softmax_forward(step, build, node)


def _apply(
    step: Step,
    build: Build,
    node: Node,
    kernel: Kernel,
    normed: Normed | None,
    batch: int,
    blocks: range,
    planes: Planes,
) -> None:
    """Declare the task that applies a node's bias, norm and function to some blocks and planes."""
    tensor, summed = build.maps.activations[node.name], build.summed(node.name)
    planar, place = tensor.lanes == 1, (planes.low, planes.first)
    # What belongs to another node stays as it is, and behind a norm the sum: statistics and coefficients refer to it.
    # Else, where the sum is kept apart, it gets its bias in place, so that the backward pass finds what the function
    # saw.
    (first, *_) = build.layout.network.incoming(node.name)
    stays = normed is not None or is_read_there(build.layout, first)

    def words(block: int) -> dict[str, float]:
        bias = {"bias": build.bias_address(node.name, block * tensor.lanes), "affine": 0}
        return {
            **rows_of(summed, "source", batch, block, *place),
            **rows_of(tensor, "target", batch, block, *place),
            **counts(tensor, *planes),
            **(normed.affine_words(batch, block) if normed else bias),
            "channels": LANES if planar else tensor.block_channels(block),
            "length": tensor.row,
            **shape_words(build, node, block),
            "planar": int(planar),
        }

    def reads(block: int) -> Iterator[Region]:
        yield from summed.met(batch, block, *planes)
        if normed:
            yield normed.affine_reads(batch, block)
        else:
            yield from build.bias_reads(node.name)
        yield from slopes_read(build, node)

    def writes(block: int) -> Iterator[Region]:
        yield from tensor.met(batch, block, *planes)
        if not stays:
            yield from summed.met(batch, block, *planes)

    step.add_each(
        kernel,
        blocks,
        words,
        what=Identity(node.name, Pass.FORWARD, Part.FUNCTION),
        cost=_cost(tensor, planes, 2 if summed is tensor else 3),
        reads=reads,
        writes=writes,
    )


def _transfer_backward(step: Step, build: Build, node: Node) -> None:
    gradient = build.maps.gradients[node.name]
    if node.function == "softmax":
        softmax_backward(step, build, node)
    elif node.function == "linear" and not build.learns(node.name):
        return
    needs_sum = keeps_sum(build.layout, node)
    output = build.summed(node.name) if needs_sum else build.maps.activations[node.name]
    left = _partials(build, node)
    cuts = _backward_cuts(gradient, None if any(left) else build.layout.grain)
    # Samples of one part each follow each other evenly, and those of several parts one by one.
    seconds = _cost(gradient, Planes(0, gradient.extent), 3) * gradient.batch
    together = [range(batch, batch + 1) for batch in range(gradient.batch)]
    if len(cuts) == 1:
        all_seconds = seconds * gradient.blocks
        together = build.layout.grain.together(gradient.batch, seconds, all_seconds)
    for block, partials in enumerate(left):
        for samples in together:
            for index, planes in enumerate(cuts):
                # Numbered through all samples: partial sums are added in this order.
                leaves = range(
                    samples.start * len(cuts) + index, samples.stop * len(cuts), len(cuts)
                )
                share = _Share(block, samples, planes, partials, leaves)
                _undo(step, build, node, output, gradient, share)
        count = gradient.batch * len(cuts)
        if partials and gradient.lanes == 1:
            sum_planar_bias(step, build, node, block, partials, count, 1)
        elif partials:
            sum_bias(step, build, node, block, 1, partials, count)


class _Share(NamedTuple):
    """What a task of a function's gradient takes: planes of a block in some samples.

    `leaves`: numbers of the sums for the bias that it leaves in `partials`, one for each sample.
    """

    block: int
    samples: range
    planes: Planes
    partials: Buffer | None
    leaves: range


def _undo(
    step: Step, build: Build, node: Node, output: Tensor, gradient: Tensor, share: _Share
) -> None:
    """Declare the task that turns gradients into those by the sum, in place; `output`: what that is known by."""
    block, samples, planes, partials, leaves = share
    place, planar = (planes.low, planes.first), gradient.lanes == 1
    function = "linear" if node.function == "softmax" else node.function

    def words(number: int) -> dict[str, float]:
        batch, leaf = samples[number], leaves[number]
        return {
            **rows_of(output, "output", batch, block, *place),
            **rows_of(gradient, "gradient", batch, block, *place),
            **rows_of(gradient, "target", batch, block, *place),
            **counts(gradient, *planes),
            "bias_gradient": partials.address + 4 * LANES * leaf if partials else 0,
            "channels": LANES if planar else gradient.block_channels(block),
            "length": gradient.row,
            **shape_words(build, node, block),
        }

    written = [region for batch in samples for region in gradient.met(batch, block, *planes)]
    step.add_calls(
        kernels_of(function, node).backward,
        range(len(samples)),
        words,
        what=Identity(node.name, Pass.BACKWARD, Part.FUNCTION),
        cost=_cost(gradient, planes, 3) * len(samples),
        reads=[
            *(region for batch in samples for region in output.met(batch, block, *planes)),
            *written,
            *slopes_read(build, node),
        ],
        writes=[*written, *(region for leaf in leaves for region in left_behind(partials, leaf))],
    )


def _backward_cuts(gradient: Tensor, grain: Grain | None) -> list[Planes]:
    """Return what each task of a function's gradient takes of a block; without a grain, leaves of sums."""
    if grain:
        return plane_parts(gradient, 3, grain)
    return [Planes(*cut) for cut in plane_ranges(gradient, 3)]


def _partials(build: Build, node: Node) -> list[Buffer | None]:
    """Return a buffer for the partial bias gradients of each block, reserved even if the loss computes them."""
    gradient = build.maps.gradients[node.name]
    count = gradient.batch * len(_backward_cuts(gradient, None))
    return [build.bias_partials(node, block, count) for block in range(gradient.blocks)]


def _concatenate(step: Step, build: Build, node: Node) -> None:
    """Declare copies of the edges that could not write into whole blocks of the concat node."""
    target, first = build.maps.activations[node.name], 0
    what = Identity(node.name, Pass.FORWARD, Part.COPY)
    for edge in build.layout.network.incoming(node.name):
        source = build.maps.contributions[edge.name]
        # The last edge also clears the idle lanes behind it, in memory that others may have used.
        last = first + source.channels == target.channels
        if not source.lies_in(target, build.layout.stacked(edge)):
            _copy_channels(step, source, target, 0, first, last, what)
        first += source.channels


def split_concat(step: Step, build: Build, node: Node, edge: Edge, first: int) -> Tensor:
    """Return one edge's part of a concat node's gradient; declare its copy unless it has whole blocks.

    That of an identity edge is copied straight into the data gradient.
    """
    source, block = build.maps.gradients[node.name], build.layout.stacked(edge)
    # Whole blocks are a view; nothing is copied.
    if block is not None:
        return source.part(block, build.maps.contributions[edge.name].channels)
    passed = edge.kind == "identity"
    target = build.maps.backward[edge.name] if passed else build.concat_gradient(edge.name)
    what = Identity(node.name, Pass.BACKWARD, Part.SPLIT)
    _copy_channels(step, source, target, first, 0, True, what)
    return target


def _copy_channels(
    step: Step, source: Tensor, target: Tensor, from_: int, to: int, pad: bool, what: Identity
) -> None:
    channels = min(source.channels - from_, target.channels - to)
    for batch in range(source.batch):
        for low, high in plane_ranges(target, 2 * target.blocks):
            step.add(
                copy_channels,
                {
                    **rows_of(source, "source", batch, 0, low),
                    **rows_of(target, "target", batch, 0, low),
                    **counts(source, low, high),
                    "source_block": source.block_stride,
                    "target_block": target.block_stride,
                    "first_source": from_,
                    "first_target": to,
                    "channels": channels,
                    "pad": int(pad),
                    "width": source.shape[2],
                },
                what=what,
                cost=_cost(source, Planes(low, high), 2) * source.blocks,
                reads=source.regions(batch, low, high),
                writes=target.regions(batch, low, high),
            )
