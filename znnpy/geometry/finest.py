"""A network without the outputs that are coarser than others."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from znnpy.geometry.lattice import lattice_of
from znnpy.network.types import Network


def finest(network: Network) -> Network:
    """The network with its outputs of least stride alone, and what they need; itself if that is all.

    Coarser outputs help to train (deep supervision); predictions and scores are those of the others.
    """
    strides = lattice_of(network).strides
    apart = {node.name: prod(strides[node.name]) for node in network.outputs}
    needed = {name for name, step in apart.items() if step == min(apart.values())}
    if len(needed) == len(apart):
        return network
    for node in reversed(network.nodes):
        if node.name in needed:
            needed |= {edge.source for edge in network.incoming(node.name)}
    nodes = tuple(node for node in network.nodes if node.name in needed)
    return replace(
        network, nodes=nodes, edges=tuple(e for e in network.edges if e.target in needed)
    )
