"""Turns a network that pools into one that predicts every voxel, exactly.

A pooling or convolution with a true stride shows one place in so many. Without the stride, and what
follows as much sparser, it shows all of them: at each place the same numbers in the same order. This
is what running the net on all shifts of the input and weaving the results together gives (ZNNi's
max-pooling fragments), computed at once.
"""

from __future__ import annotations

from dataclasses import replace

from znnpy.layers.edges import edge_kind
from znnpy.network.patch_dependence import depends_on_patch
from znnpy.network.types import Edge, Network

ONE = (1, 1, 1)


def densest(network: Network) -> Network:
    """The network that predicts every voxel, where it can be made: without padding, growth or statistics.

    One that grows again what it pooled is used as it is, and one whose values depend on the patch.
    """
    return network if depends_on_patch(network) or _grows(network) else dense(network)


def dense(network: Network) -> Network:
    """The network with all strides turned into sparsity of what follows; same names, same filters."""
    return replace(network, edges=tuple(_dense(edge) for edge in network.edges))


def _dense(edge: Edge) -> Edge:
    if max(edge.stride) == 1:
        return edge
    z, y, x = (a * b for a, b in zip(edge.stride, edge.sparsens, strict=True))
    kind = edge_kind(edge.kind).dense or edge.kind
    return replace(edge, kind=kind, stride=ONE, sparsens=(z, y, x))


def _grows(network: Network) -> bool:
    return any(
        along.grows > 1
        for edge in network.edges
        for along in edge_kind(edge.kind).sizes(edge, edge.sparsity)
    )
