"""Operands and epilogue of a pass of Winograd's minimal filtering.

Operands are the tensors that it reads and writes. The epilogue is done to finished sums: bias and activation function
of the target, or the gradient of the source's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from znnpy_kernels.direct.epilogue import PLAIN
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.convolution.winograd.arguments import (
    dilation_of,
    pass_words,
    place_words,
    unframed,
)
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.regions import Region
from znnpy.engine.memory.tensor_aliases import adds
from znnpy.engine.memory.tensors import Planes, Tensor, firsts
from znnpy.engine.tasks.bias_gradients import sum_bias, sum_planar_bias
from znnpy.engine.tasks.fusion import function_reads, function_words
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network.types import Edge, Node, Triple
from znnpy.plan import ConvShape


@dataclass(frozen=True)
class Ends:
    """A forward pass of an edge, or its data gradient, for which source and target are exchanged.

    `shape`: as if it were a forward pass; `node`: whose function and bias go with it, or their gradients. `layer`: the
    edge itself where `edge` is another one, which has its tiles.
    """

    build: Build
    edge: Edge
    source: Tensor
    target: Tensor
    shape: ConvShape
    node: Node | None
    backward: bool
    layer: Edge | None = None

    @property
    def dilation(self) -> Triple:
        """Voxels from tap to tap; 1 along axes of one tap."""
        return dilation_of(self.build, self.edge)

    @property
    def serves(self) -> Pass:
        """The pass."""
        return Pass.BACKWARD if self.backward else Pass.FORWARD

    def task(self, part: Part) -> Identity:
        """Return the identity of its tasks."""
        return Identity(self.edge.name, self.serves, part)

    @cached_property
    def words(self) -> Mapping[str, int]:
        """Argument words that all its tasks have."""
        words = pass_words(self.build, self.edge, self.source, self.target, backward=self.backward)
        added = not self.backward and adds(self.build.layout, self.layer or self.edge)
        return {**words, "accumulate": int(added)}

    def seen(self, planes: Planes) -> Planes:
        """Return the planes of the source that planes of the target see, or the rows of them that rows see."""
        cut = self.target.cut
        low, high = self.seen_along(cut, planes.low, planes.high)
        if planes.last is None:
            return Planes(low, high)
        return Planes(low, high, *self.seen_along(1 - cut, planes.first, planes.last))

    def seen_along(self, axis: int, first: int, last: int) -> tuple[int, int]:
        """Return the voxels of the source along z or y that those of the target from first to last see."""
        # Three taps reach two dilations beyond the first.
        reach = (self.edge.size[axis] - 1) * self.dilation[axis]
        if not self.backward:
            before, apart = unframed(self.build, self.edge)[axis], self.edge.stride[axis]
            end = (last - 1) * apart + 1 - before + reach
            return max(0, first * apart - before), min(self.source.shape[axis], end)
        before = firsts(self.build.layout.cropped(self.edge))[axis]
        return max(0, first + before - reach), min(self.source.shape[axis], last + before)


def strands(regions: Iterable[Region], strand: int) -> list[Region]:
    """Return the regions that one of several tasks writes side by side in the same planes; -1: all of them."""
    return [region.as_strand(strand) for region in regions]


class Finish:
    """For the node that a pass goes with, if any; `leaves`: how many partial bias gradients are left behind."""

    def __init__(self, ends: Ends, leaves: int) -> None:
        build, node, target = ends.build, ends.node, ends.target
        self.build, self.node, self.target, self.leaves = build, node, target, leaves
        self.values, self.partials, self.bias = None, None, node.name if node else None
        # The data gradient applies the source's function backward: it reads the values, and leaves
        # sums for the bias.
        if node and ends.backward:
            self.values, self.bias = build.maps.activations[node.name], None
            self.partials = build.bias_partials(node, 0, leaves * target.blocks)

    def words(self, batch: int, blocks: range, leaf: int) -> dict[str, float]:
        """Return the argument words of a task that finishes some blocks of an image of the batch."""
        if not self.node:
            return dict(PLAIN)
        # PLAIN: every kernel reads all words; 0 where nothing is to be done.
        words = function_words(self.build, self.node)
        if self.bias:
            words["bias"] = self.build.bias_address(self.bias, blocks.start * LANES)
        if self.values:
            words |= place_words("output", self.values, batch, blocks.start)
        if self.partials:
            first = leaf * self.target.blocks + blocks.start
            words["bias_gradient"] = self.partials.address + 4 * LANES * first
        return words

    def reads(self, batch: int, blocks: range, planes: Planes) -> list[Region]:
        """Return what such a task reads for it, of some planes or rows of them."""
        found = self.build.bias_reads(self.bias) if self.bias else []
        found += function_reads(self.build, self.node) if self.node else []
        if self.values:
            found += [it for block in blocks for it in self.values.met(batch, block, *planes)]
        return found

    def leaves_behind(self, leaf: int, blocks: range) -> list[Region]:
        """Return the regions of partial bias gradients that such a task writes."""
        # Tasks of one leaf write different blocks of it, side by side.
        return [self.partials.region(leaf, leaf + 1, strand=blocks.start)] if self.partials else []

    def emit_sum(self, step: Step) -> None:
        """Declare the sum of partial bias gradients."""
        if not (self.node and self.partials):
            return
        blocks = self.target.blocks
        if self.target.lanes == 1:
            for channel in range(blocks):
                sum_planar_bias(
                    step, self.build, self.node, channel, self.partials, self.leaves, blocks
                )
        else:
            sum_bias(step, self.build, self.node, 0, blocks, self.partials, self.leaves)
