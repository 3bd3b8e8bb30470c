"""Tables of what normalisation keeps of each channel block: statistics, coefficients, sums of gradients."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from znnpy_kernels.layers import normalization_statistics
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.regions import SMALL, Buffer, Name, Region, Use
from znnpy.engine.memory.tensors import Tensor
from znnpy.network.types import Node, Norm

MOMENTS = Use("statistics", SMALL)
COEFFICIENTS = Use("coefficients of normalisation", SMALL)

DOUBLE = 2  # floats of a float64
# A handful of float64 operations.
CHANNEL_SECONDS = 1e-8  # estimated cost of merging one part of one channel


@dataclass(frozen=True)
class Table:
    """A buffer with an entry for each block of each sample; regions count entries."""

    buffer: Buffer
    entry: int  # floats
    blocks: int

    def at(self, sample: int, block: int) -> int:
        """Return the address of an entry."""
        return self.buffer.address + 4 * self.entry * (sample * self.blocks + block)

    def region(self, sample: int, block: int) -> Region:
        """Return the region of an entry."""
        index = sample * self.blocks + block
        return self.buffer.region(index, index + 1)

    def regions(self, samples: int, blocks: range) -> list[Region]:
        """Return the regions of the entries of some blocks of all samples."""
        return [self.region(sample, block) for sample in range(samples) for block in blocks]


@dataclass(frozen=True)
class Normed:
    """A node whose sum is normalised, with its tables of statistics and coefficients.

    A sample here is what has statistics of its own: an item of the batch, or with batch normalisation all of them.
    """

    build: Build
    node: Node
    norm: Norm
    summed: Tensor

    @classmethod
    def of(cls, build: Build, node: Node) -> Normed:
        """Return the tables of a node that has a normalisation."""
        assert node.norm is not None
        return cls(build, node, node.norm, build.summed(node.name))

    @property
    def samples(self) -> int:
        """How many samples have statistics of their own."""
        return 1 if self.norm.kind == "batch" else self.summed.batch

    @property
    def merged(self) -> int:
        """How many items of the batch make a sample."""
        return self.summed.batch // self.samples

    def units(self, cuts: int) -> list[range]:
        """Return the channel blocks that each merging task takes: no group of channels lies in two of them.

        `cuts`: parts of a block.
        """
        blocks = self.summed.blocks
        # Statistics of groups and layers may reach over blocks, so one task takes all of them.
        if self.norm.kind not in ("batch", "instance"):
            return [range(blocks)]
        seconds = CHANNEL_SECONDS * self.channels(range(blocks)) * self.summed.batch * cuts
        return self.build.layout.grain.groups(blocks, seconds)

    def channels(self, unit: range) -> int:
        """Return the number of channels in a unit."""
        return min(self.node.channels - unit.start * LANES, len(unit) * LANES)

    def sample(self, batch: int) -> int:
        """Return the sample to which an item of the batch belongs."""
        return batch // self.merged

    def kept(self, what: str) -> str:
        """Return the parameter name of what the node keeps beside its bias."""
        return f"{self.node.name}.{what}"

    @cached_property  # asked for by each task of a pass
    def coefficients(self) -> Table:
        """The coefficients by which the pass of the function normalises."""
        return self.table(COEFFICIENTS, self.samples, normalization_statistics.COEFFICIENTS)

    @property
    def moments(self) -> Table:
        """The statistics that gradients and running statistics need; for the latter summed over microbatches."""
        entry, blocks = normalization_statistics.MOMENTS * LANES * DOUBLE, self.summed.blocks
        if not self.norm.running:
            return self.table(MOMENTS, self.samples, entry)
        # In a slot of its own, like a gradient: microbatches, and ranks, add them up by the tree.
        name = Name(MOMENTS, self.node.name)
        return Table(self.build.added_up(name, entry * blocks), entry, blocks)

    def table(self, use: Use, samples: int, entry: int) -> Table:
        """Return a table with entries of `entry` floats."""
        blocks = self.summed.blocks
        name = Name(use, self.node.name)
        return Table(self.build.scratch(name, entry * blocks * samples), entry, blocks)

    def affine_words(self, batch: int, block: int) -> dict[str, int]:
        """Return the argument words by which the kernel of a function normalises its input."""
        here = self.coefficients.at(self.sample(batch), block)
        # An entry is three vectors: scale, centre, bias.
        return {"affine": here, "bias": here + 4 * 2 * LANES}

    def affine_reads(self, batch: int, block: int) -> Region:
        """Return the region that `affine_words` make a kernel read."""
        return self.coefficients.region(self.sample(batch), block)

    def table_words(self, leaves: Table, unit: range, cuts: int) -> dict[str, int]:
        """Return the words of a task that merges statistics; `leaves` has an entry for all parts of a block."""
        first, channel = unit.start, LANES * unit.start
        parameters = {
            "bias": self.build.values_address(self.node.name, channel),
            "scale": self.build.values_address(self.kept("scale"), channel),
        }
        blocks = self.summed.blocks
        return parameters | {
            "leaves": leaves.at(0, first),
            "image_step": 4 * leaves.entry * blocks,
            "block_step": 4 * leaves.entry,
            "cuts": cuts,
            "samples": self.samples,
            "merged": self.merged,
            "channels": self.channels(unit),
            "size": self.node.channels // self.norm.parts(self.node.channels),
            "moments": self.moments.at(0, first),
            "moments_step": 4 * self.moments.entry * blocks,
        }
