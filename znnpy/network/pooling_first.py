"""Orders nodes so that what is pooled is made as soon as its source is there, which can then be let go of sooner."""

from __future__ import annotations

from dataclasses import replace

from znnpy.layers.types import ONCE
from znnpy.network.types import Network, Node

POOLED = ("max_pool", "avg_pool")


def pooling_first(network: Network) -> Network:
    """Return the network with each pooled node right behind its source; nodes are computed in their order.

    Shortcuts of residual blocks are pooled after the block's convolutions otherwise, and its large source waits.
    Values are the same, to the bit.
    """
    pooled = {
        name: source
        for node in network.nodes
        if (source := _pooled_from(network, name := node.name))
    }
    order = list[Node]()
    for node in network.nodes:
        if node.name in pooled:
            continue
        order.append(node)
        waiting = [node.name]
        while waiting:
            source = waiting.pop()
            found = [name for name, its in pooled.items() if its == source]
            order += map(network.node, found)
            waiting += found
    return replace(network, nodes=tuple(order))


def _pooled_from(network: Network, name: str) -> str | None:
    """Return the node of which a node is a smaller image alone, if it is."""
    edges = network.incoming(name)
    if len(edges) != 1 or edges[0].kind not in POOLED or edges[0].stride == ONCE:
        return None
    return edges[0].source
