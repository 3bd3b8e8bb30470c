"""What passes do with finished sums: bias and function of the target, or gradients of the source's."""

from __future__ import annotations

from znnpy_kernels.direct.epilogue import PLAIN
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.convolution.winograd.ends import Ends
from znnpy.engine.convolution.winograd.words import place_words
from znnpy.engine.memory.regions import Region
from znnpy.engine.tasks.biases import sum_bias
from znnpy.engine.tasks.fusion import slope_of
from znnpy.engine.tasks.step import Step


class Finish:
    """For the node that a pass goes with, if any; `leaves`: how many partial bias gradients are left behind."""

    def __init__(self, ends: Ends, leaves: int) -> None:
        build, node, target = ends.build, ends.node, ends.target
        self.build, self.node, self.target, self.leaves = build, node, target, leaves
        self.values, self.partials, self.bias = None, None, node.name if node else None
        if node and ends.backward:
            self.values, self.bias = build.images.activations[node.name], None
            self.partials = build.bias_partials(node, 0, leaves * target.blocks)

    def words(self, batch: int, blocks: range, leaf: int) -> dict[str, float]:
        """Argument words of a task that finishes some blocks of an image of the batch."""
        if not self.node:
            return dict(PLAIN)
        words = PLAIN | {"slope": slope_of(self.node)}
        if self.bias:
            words["bias"] = self.build.bias_address(self.bias, blocks.start * LANES)
        if self.values:
            words |= place_words("output", self.values, batch, blocks.start)
        if self.partials:
            first = leaf * self.target.blocks + blocks.start
            words["bias_gradient"] = self.partials.address + 4 * LANES * first
        return words

    def reads(self, batch: int, blocks: range, low: int, high: int) -> list[Region]:
        """What such a task reads for it, of planes low..high."""
        found = self.build.bias_reads(self.bias) if self.bias else []
        if self.values:
            found += [it for block in blocks for it in self.values.met(batch, block, low, high)]
        return found

    def leaves_behind(self, leaf: int, blocks: range) -> list[Region]:
        """The partial bias gradients that it writes."""
        return [self.partials.region(leaf, leaf + 1, strand=blocks.start)] if self.partials else []

    def emit_sum(self, step: Step) -> None:
        """Add up partial bias gradients."""
        if self.node and self.partials:
            blocks = self.target.blocks
            sum_bias(step, self.build, self.node, 0, blocks, self.partials, self.leaves)
