"""Converts a network with strides into one that predicts every voxel, with exactly the same values.

A pooling or convolution with stride s computes one place in s. With stride 1, and everything after it dilated by
s, it computes all of them, each from the same numbers in the same order. Running the network on all shifts of the
input and interleaving the results gives the same (max-pooling fragments, Zlateski et al. 2016).
"""

from __future__ import annotations

from dataclasses import replace

from znnpy.layers.edges import edge_kind
from znnpy.network.patch_dependence import depends_on_patch
from znnpy.network.types import Edge, Network

ONE = (1, 1, 1)


def densest(network: Network) -> Network:
    """Return the network that predicts every voxel, or the network itself where that is not possible.

    It is not possible with upsampling or resizing, and where values depend on the patch (padding, statistics
    of a sample).
    """
    return network if depends_on_patch(network) or _resizes(network) else dense(network)


def dense(network: Network) -> Network:
    """Return the network with every stride turned into dilation of what follows; names and filters stay."""
    return replace(network, edges=tuple(_dense(edge) for edge in network.edges))


def _dense(edge: Edge) -> Edge:
    if max(edge.stride) == 1:
        return edge
    z, y, x = (a * b for a, b in zip(edge.stride, edge.sparsens, strict=True))
    kind = edge_kind(edge.kind).dense or edge.kind
    return replace(edge, kind=kind, stride=ONE, sparsens=(z, y, x))


def _resizes(network: Network) -> bool:
    """Whether anything grows, or shrinks by other than a stride."""
    return any(
        along.grows > 1 or (along.shrinks > 1 and edge.stride == ONE)
        for edge in network.edges
        for along in edge_kind(edge.kind).sizes(edge, edge.sparsity)
    )
