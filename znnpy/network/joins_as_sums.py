"""Turns convolutions of stacked feature maps into sums of convolutions, so that what is stacked need not wait for it.

A U-Net's joined image is what came down beside what comes up; its convolution is that of the one plus that of the
other. The first can be made on the way down, in half of the memory that the joined image would take until then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from znnpy.network.types import Edge, Network

Arrays = Mapping[str, Any]


@dataclass(frozen=True)
class Sums:
    """A network without joins, and by the name of each convolution that was one its parts: names and channels."""

    network: Network
    parts: Mapping[str, tuple[tuple[str, slice], ...]]

    def parameters(self, given: Arrays) -> dict[str, Any]:
        """Return the parameters of the network from those of the one with joins; parts are views."""
        found: dict[str, Any] = {}
        for name, values in given.items():
            for part, channels in self.parts.get(name, ()):
                found[part] = values[:, channels]
            if name not in self.parts:
                found[name] = values
        return found


def joins_as_sums(network: Network) -> Sums:
    """Return the network in which convolutions of whole concat nodes are sums of convolutions, where that is possible.

    It is where convolutions alone read the node, and its edges bring what their sources are. Values differ by rounding.
    """
    joins = {node.name for node in network.nodes if node.kind == "concat"}
    joins = {name for name in joins if _splits(network, name)}
    order = {node.name: number for number, node in enumerate(network.nodes)}
    edges, parts = list[Edge](), dict[str, tuple[tuple[str, slice], ...]]()
    for edge in network.edges:
        if edge.source not in joins:
            edges += [] if edge.target in joins else [edge]
            continue
        # What is there first comes first: the others are added to it.
        made = sorted(_parts(network, edge), key=lambda part: order[part[0].source])
        edges += [part for part, _ in made]
        parts[edge.name] = tuple((part.name, channels) for part, channels in made)
    nodes = tuple(node for node in network.nodes if node.name not in joins)
    return Sums(Network(nodes, tuple(edges)), parts)


def _splits(network: Network, name: str) -> bool:
    arriving, leaving = network.incoming(name), network.outgoing(name)
    return (
        bool(leaving)
        and all(edge.kind == "identity" for edge in arriving)
        and len({edge.source for edge in arriving}) == len(arriving) > 1
        and all(
            edge.kind == "conv"
            and edge.groups == 1
            and not edge.weight_standardization
            and network.node(edge.target).kind in ("sum", "transfer")
            for edge in leaving
        )
    )


def _parts(network: Network, edge: Edge) -> Iterator[tuple[Edge, slice]]:
    """Yield a convolution of each image of a join, and the channels of the filters that it has."""
    first = 0
    for number, arriving in enumerate(network.incoming(edge.source)):
        end = first + network.node(arriving.source).channels
        yield (
            replace(edge, name=f"{edge.name}:{number}", source=arriving.source),
            slice(first, end),
        )
        first = end
