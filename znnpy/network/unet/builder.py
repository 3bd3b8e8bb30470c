"""Collects the nodes and edges of a U-Net, and gives each the function, norm, bias and padding of the section."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from znnpy.config.unet_section import UnetSection
from znnpy.layers.activation_functions import FunctionName
from znnpy.layers.keys import slope_of
from znnpy.layers.normalization import norm_of
from znnpy.layers.types import EdgeKindName
from znnpy.network.types import ONCE, Edge, Node, Sides, Triple

NOTHING: Triple = (0, 0, 0)


@dataclass
class Sketch:
    """The nodes and edges added so far, in the order in which data flows."""

    section: UnetSection
    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)

    def add(self, node: Node) -> Node:
        """Add a node and return it."""
        self.nodes.append(node)
        return node

    def passing(self, name: str, channels: int) -> Node:
        """Add a node that only sums its edges."""
        return self.add(Node(name, "sum", channels, bias=False))

    def active(self, name: str, channels: int, *, bias: bool = True, normed: bool = True) -> Node:
        """Add a node with the network's activation function, and its bias and norm unless told not to."""
        return self._transfer(name, channels, self.section.function, bias, normed)

    def linear(self, name: str, channels: int, *, bias: bool = True, normed: bool = False) -> Node:
        """Add a node without an activation function, with the network's bias unless told not to."""
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
        """Add an edge and return the node that it leads to."""
        self.edges.append(Edge(name, kind, source.name, to.name, **numbers))
        return to

    def hand(self, name: str, source: Node, to: Node, crop: Triple = NOTHING) -> Node:
        """Add an edge that passes a feature map on, cropped by a margin (z, y, x) on each side."""
        if crop == NOTHING:
            return self.lead(name, "identity", source, to)
        return self.lead(name, "crop", source, to, offset=crop)

    def convolve(
        self, name: str, source: Node, to: Node, size: Triple, stride: Triple = ONCE
    ) -> Node:
        """Add a convolution, padded if the network is, and return the node that it leads to."""
        numbers: dict[str, Any] = {"size": size, "stride": stride}
        if self.section.padding == "same" and size != ONCE:
            numbers["padding"] = "same" if stride == ONCE else _around(size)
            numbers["border"] = self.section.border
        return self.lead(name, "conv", source, to, **numbers)


def _around(size: Triple) -> Sides:
    """Return the padding that `same` stands for; the word itself is refused beside a stride."""
    z, y, x = (((taps - 1) // 2, taps // 2) for taps in size)
    return z, y, x
