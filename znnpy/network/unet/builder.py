"""Nodes and edges of a U-Net as they are added, with what all of them have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from znnpy.config.unet_section import UnetSection
from znnpy.layers.activation_functions import FunctionName
from znnpy.layers.keys import slope_of
from znnpy.layers.normalization_keys import norm_of
from znnpy.layers.operation import EdgeKindName
from znnpy.network.types import ONCE, Edge, Node, Sides, Triple

NOTHING: Triple = (0, 0, 0)


@dataclass
class Sketch:
    """Nodes and edges so far."""

    section: UnetSection
    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)

    def add(self, node: Node) -> Node:
        """One more node."""
        self.nodes.append(node)
        return node

    def passing(self, name: str, channels: int) -> Node:
        """A node that adds what arrives, no more."""
        return self.add(Node(name, "sum", channels, bias=False))

    def active(self, name: str, channels: int, *, bias: bool = True, normed: bool = True) -> Node:
        """A node with the function of the net; with its biases and norm, unless told not to."""
        return self._transfer(name, channels, self.section.function, bias, normed)

    def linear(self, name: str, channels: int, *, bias: bool = True, normed: bool = False) -> Node:
        """A node without a function; with the biases of the net unless told not to."""
        return self._transfer(name, channels, "linear", bias, normed)

    def _transfer(
        self, name: str, channels: int, function: FunctionName, bias: bool, normed: bool
    ) -> Node:
        section = self.section
        slope = slope_of(function, section.slope if function == section.function else None)
        norm = norm_of(section.norm) if normed else None
        bias = bias and section.biased
        return self.add(Node(name, "transfer", channels, function, slope, bias, norm=norm))

    def lead(self, name: str, kind: EdgeKindName, source: Node, to: Node, **numbers: Any) -> Node:
        """An edge; returns the node that it leads to."""
        self.edges.append(Edge(name, kind, source.name, to.name, **numbers))
        return to

    def hand(self, name: str, source: Node, to: Node, crop: Triple = NOTHING) -> Node:
        """Images as they are, or what lies inside a margin."""
        if crop == NOTHING:
            return self.lead(name, "identity", source, to)
        return self.lead(name, "crop", source, to, offset=crop)

    def convolve(
        self, name: str, source: Node, to: Node, size: Triple, stride: Triple = ONCE
    ) -> Node:
        """A convolution, with padding where the net has it."""
        numbers: dict[str, Any] = {"size": size, "stride": stride}
        if self.section.padding == "same" and size != ONCE:
            numbers["padding"] = "same" if stride == ONCE else _around(size)
            numbers["border"] = self.section.border
        return self.lead(name, "conv", source, to, **numbers)


def _around(size: Triple) -> Sides:
    """Padding that `same` stands for, which is for convolutions without stride."""
    z, y, x = (((taps - 1) // 2, taps // 2) for taps in size)
    return z, y, x
