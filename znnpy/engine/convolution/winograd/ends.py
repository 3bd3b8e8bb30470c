"""What a pass of Winograd's minimal filtering goes from and to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from znnpy.engine.convolution.winograd.words import pass_words
from znnpy.engine.memory.build import Build
from znnpy.engine.memory.regions import Region
from znnpy.engine.memory.tensors import Tensor, firsts
from znnpy.engine.tasks.identity import Identity, Part, Pass
from znnpy.network.types import Edge, Node, Triple
from znnpy.plan import ConvShape


@dataclass(frozen=True)
class Ends:
    """A forward pass of an edge, or its data gradient, for which source and target are exchanged.

    `shape`: as if it were a forward pass; `node`: whose function and bias go with it, or their gradients.
    """

    build: Build
    edge: Edge
    source: Tensor
    target: Tensor
    shape: ConvShape
    node: Node | None
    backward: bool

    @property
    def dilation(self) -> Triple:
        """Voxels from tap to tap."""
        return self.build.layout.geometry.dilations[self.edge.name]

    @property
    def serves(self) -> Pass:
        """The pass."""
        return Pass.BACKWARD if self.backward else Pass.FORWARD

    def task(self, part: Part) -> Identity:
        """What a task of it is."""
        return Identity(self.edge.name, self.serves, part)

    @cached_property
    def words(self) -> Mapping[str, int]:
        """Argument words that all its tasks have."""
        return pass_words(self.build, self.edge, self.source, self.target, backward=self.backward)

    def seen(self, first: int, last: int) -> tuple[int, int]:
        """Planes of the source that planes first..last of the target see, along the cut axis."""
        cut = self.target.cut
        reach = 2 * self.dilation[cut]
        if not self.backward:
            return first, min(self.source.extent, last + reach)
        before = firsts(self.build.layout.cropped(self.edge))[cut]
        return max(0, first + before - reach), min(self.source.extent, last + before)


def strands(regions: Iterable[Region], strand: int) -> list[Region]:
    """Of what several tasks write next to each other in the same planes, one's; -1: all."""
    return [region._replace(strand=strand) for region in regions]
