"""U-Nets as graphs, small or as published."""

from __future__ import annotations

from typing import Any

from znnpy.layers.types import BARE
from znnpy.network.check import checked_network
from znnpy.network.types import Edge, Network, Node


def unet(
    depth: int, widths: int = 1, padding: Any = BARE, margins: tuple[int, ...] | None = None
) -> Network:
    """Two 3^3 convolutions a level, max_pool 2, conv_transpose 2 of stride 2, skips cropped (Cicek et al. 2016).

    `margins`: what the skips lose on each side, the finest first; by default what fits.
    """
    grows = _Graph(widths, padding)
    tip, skips = grows.node("in", "input"), []
    for level in range(depth):
        tip = grows.pair(tip, f"down{level}")
        if level < depth - 1:
            skips.append(tip)
            tip = grows.to(tip, f"pool{level}", "max_pool", size=(2, 2, 2), stride=(2, 2, 2))
    for level in reversed(range(depth - 1)):
        up = grows.to(tip, f"up{level}", "conv_transpose", size=(2, 2, 2), stride=(2, 2, 2))
        margin = margins[level] if margins else _margin(depth, level) if padding == BARE else 0
        both = grows.node(f"both{level}", "concat", 2 * widths)
        grows.edge(skips[level], both, f"skip{level}", "crop", offset=(margin,) * 3)
        grows.edge(up, both, f"stay{level}", "identity")
        tip = grows.pair(both, f"up{level}b")
    grows.to(tip, "out", "conv")
    return checked_network(grows.nodes, grows.edges)


def _margin(depth: int, level: int) -> int:
    """Each pair of convolutions below takes 4 voxels of its own level."""
    lost = 0
    for below in range(depth - 1, level, -1):
        lost = 2 * (lost + 4 * (1 if below == depth - 1 else 2))
    return lost // 2


class _Graph:
    def __init__(self, width: int, padding: Any) -> None:
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self.width, self.padding = width, padding

    def node(self, name: str, kind: Any, images: int | None = None) -> str:
        self.nodes.append(Node(name, kind, images or self.width, bias=False))
        return name

    def edge(self, source: str, target: str, name: str, kind: Any, **more: Any) -> None:
        self.edges.append(Edge(f"e_{name}", kind, source, target, **more))

    def to(self, source: str, name: str, kind: Any, **more: Any) -> str:
        self.edge(source, self.node(name, "transfer"), name, kind, **more)
        return name

    def pair(self, source: str, name: str) -> str:
        more = {"size": (3, 3, 3), "padding": self.padding}
        return self.to(self.to(source, f"{name}a", "conv", **more), name, "conv", **more)
