"""How an output is cut into tasks of its loss, and the argument words and regions of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from znnpy_kernels.layers.loss_rows import AT
from znnpy_kernels.simd.lanes import LANES

from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.regions import Region
from znnpy.engine.memory.staging import Staging
from znnpy.engine.memory.tensors import Tensor
from znnpy.engine.tasks.step import counts, plane_ranges, rows_of
from znnpy.learning.loss import Objective
from znnpy.network.types import Node
from znnpy.plan.cost import MEMORY_RATE


class Leaf(NamedTuple):
    """Planes low..high of one sample; leaves are numbered through all samples."""

    number: int
    batch: int
    low: int
    high: int


@dataclass(frozen=True)
class Parts:
    """Buffers of the loss of one output, cut into leaves; `gradient` is None if nothing before it learns."""

    node: Node
    objective: Objective
    output: Tensor
    gradient: Tensor | None
    staged: Staging
    leaves: tuple[Leaf, ...]

    @classmethod
    def of(cls, build: Build, node: Node, objective: Objective) -> Parts:
        """Return the parts of an output node."""
        output = build.maps.activations[node.name]
        # About six operands: values, target, weight, the gradient, and exponentials on the way.
        cuts = plane_ranges(output, 6 * output.blocks)
        leaves = tuple(
            # Leaves of one sample follow each other: losses of overlap sum over them sample by
            # sample.
            Leaf(batch * len(cuts) + index, batch, low, high)
            for batch in range(output.batch)
            for index, (low, high) in enumerate(cuts)
        )
        return cls(
            node, objective, output, build.maps.gradients.get(node.name), build.staged, leaves
        )

    @property
    def count(self) -> int:
        """The number of leaves of all samples."""
        return len(self.leaves)

    @property
    def width(self) -> int:
        """The number of channels, rounded up to whole vectors."""
        return -(-self.output.channels // LANES) * LANES

    @property
    def cost(self) -> float:
        """Estimated seconds of one leaf."""
        output = self.output
        each = self.count // output.batch
        return output.batch_stride * output.blocks * 24 / MEMORY_RATE / each

    def read(self, leaf: Leaf) -> list[Region]:
        """Return the regions of the output's values."""
        return self.output.regions(leaf.batch, leaf.low, leaf.high)

    def written(self, leaf: Leaf) -> list[Region]:
        """Return the regions of the gradient, none if there is none."""
        gradient = self.gradient
        return [] if gradient is None else gradient.regions(leaf.batch, leaf.low, leaf.high)

    def words(self, leaf: Leaf) -> dict[str, float]:
        """Return the argument words of `loss_rows` except those of the gradient and of partial sums."""
        output, name = self.output, self.node.name
        numbers = self.objective.numbers
        return {
            # Losses share their words; those that a loss does not read are 0.
            **dict.fromkeys(AT._fields, 0),
            **{word: value for word, value in numbers.items() if word in AT._fields},
            **rows_of(output, "output", leaf.batch, 0, leaf.low),
            **_planar(output, "target", leaf.batch, leaf.low),
            **_planar(output, "weight", leaf.batch, leaf.low),
            "places": self.staged.places[name],
            **counts(output, leaf.low, leaf.high),
            "output_block": output.block_stride,
            "normaliser": self.staged.normalizers[name],
            "classes": self.staged.classes[name],
            "channels": output.channels,
            "width": output.shape[2],
            "lanes": output.lanes,
        }

    def gradient_words(self, leaf: Leaf) -> dict[str, int]:
        """Return the argument words of the gradient, none if there is none."""
        if self.gradient is None:
            return {}
        return {
            **rows_of(self.gradient, "gradient", leaf.batch, 0, leaf.low),
            "gradient_block": self.gradient.block_stride,
        }


def joined(words: Mapping[str, float]) -> dict[str, float]:
    """Return the same words with rows and planes that follow each other in all images as one row.

    So vectors are full but for one at the end, where rows are short or no multiple of LANES. Not for kernels that ask
    where a voxel lies.
    """
    made = dict(words)
    images = {"output": made["lanes"], "gradient": made["lanes"], "target": 1, "weight": 1}
    if not made["gradient"]:
        del images["gradient"]  # not wanted: it has no strides
    for count, axis in (("rows", "y"), ("planes", "z")):
        width = made["width"]
        apart = any(made[f"{image}_{axis}"] != width * step for image, step in images.items())
        if made[count] > 1 and apart:
            break
        made |= {"width": width * made[count], count: 1}
    return made


def _planar(output: Tensor, prefix: str, batch: int, low: int) -> dict[str, int]:
    """Return the words of a planar target or weight of the output's shape: offset in bytes, strides in floats."""
    depth, height, width = output.shape
    channel = depth * height * width
    z, _, y, _ = output.box(low, low + 1)
    return {
        # Relative to the address in `places`, which changes from step to step.
        prefix: 4 * (batch * output.channels * channel + (z * height + y) * width),
        f"{prefix}_image": channel,
        f"{prefix}_z": height * width,
        f"{prefix}_y": width,
    }
