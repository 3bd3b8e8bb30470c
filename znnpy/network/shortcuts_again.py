"""Makes what shortcuts bring straight from an input a second time, where it is added, so that it need not wait for it.

A residual block adds its source to what its convolutions made of it: three images at once, the most that such a net
ever needs where the source is the net's first layer. That takes a small part of the block's work to make again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from znnpy.layers.types import ONCE
from znnpy.network.parameters import held
from znnpy.network.types import Edge, Network, Node

Arrays = Mapping[str, Any]
AGAIN = 8  # times the input's channels that a node has at least: else it takes long to make again


@dataclass(frozen=True)
class Repeated:
    """A network in which some nodes are made twice; by the name of each parameter of the second the first's."""

    network: Network
    names: Mapping[str, str]

    def parameters(self, given: Arrays) -> dict[str, Any]:
        """Return the parameters of the network from those of the one that makes each node once; arrays are shared."""
        return {**given, **{name: given[of] for name, of in self.names.items()}}


def shortcuts_again(network: Network) -> Repeated:
    """Return the network in which first layers that a shortcut brings to a sum are made again right before it.

    Where nothing reads them after that, a single convolution without a stride makes them, and the input has few
    channels. Values are the same, to the bit. For networks that only predict: the second has parameters of its own.
    """
    waiting = {edge.name: edge for edge in network.edges if _waits(network, edge)}
    nodes, more, names = list[Node](), list[Edge](), dict[str, str]()
    for node in network.nodes:
        for edge in (it for it in network.incoming(node.name) if it.name in waiting):
            source, (making,) = network.node(edge.source), network.incoming(edge.source)
            again = replace(source, name=f"{source.name}:{edge.name}")
            nodes.append(again)
            more.append(replace(making, name=f"{making.name}:{edge.name}", target=again.name))
            waiting[edge.name] = replace(edge, source=again.name)
            names |= {more[-1].name: making.name} | _names(again, source)
        nodes.append(node)
    edges = (*(waiting.get(edge.name, edge) for edge in network.edges), *more)
    return Repeated(Network(tuple(nodes), edges), names)


def _waits(network: Network, edge: Edge) -> bool:
    """Return whether an edge is such a shortcut, whose source would wait for it alone."""
    source, making = network.node(edge.source), network.incoming(edge.source)
    if edge.kind != "identity" or network.node(edge.target).kind not in ("sum", "transfer"):
        return False
    if len(making) != 1 or making[0].kind != "conv" or making[0].stride != ONCE:
        return False
    first = network.node(making[0].source)
    order = [node.name for node in network.nodes]
    readers = [order.index(it.target) for it in network.outgoing(source.name) if it is not edge]
    return (
        first.kind == "input"
        and source.channels >= AGAIN * first.channels
        and bool(readers)
        and max(readers) < order.index(edge.target)
    )


def _names(again: Node, first: Node) -> dict[str, str]:
    """Return by the name of each parameter that a node has that of the node that it repeats."""
    of = {first.name: again.name} if first.kind == "transfer" and first.bias else {}
    of |= dict(zip(held(first), held(again), strict=True))
    return {name: its for its, name in of.items()}
