"""Which gradients are made from the voxels that won maxima alone: others' gradients behind a max pooling are zeros."""

from __future__ import annotations

from math import prod

from znnpy_kernels.direct import maxima_gradient

from znnpy.engine.memory.layout import Layout
from znnpy.layers.types import BARE, ONCE
from znnpy.network.types import Edge, Node


def is_plain(node: Node) -> bool:
    """Return whether a node applies an activation function to its sum without a normalisation."""
    return node.kind == "transfer" and node.norm is None


def is_pair_filter(edge: Edge) -> bool:
    """Return whether an edge takes maxima over at most two voxels along each axis, without stride or padding."""
    alike = edge.kind in ("max_filter", "max_pool") and edge.padding == BARE
    return alike and max(edge.size) <= 2 and max(edge.stride) == 1


def biased_by_maxima(layout: Layout, node: Node) -> Edge | None:
    """Return the max pooling whose outputs' gradients add up to that of a node's bias; None if there is none.

    Each output hands all of its gradient to one voxel, so sums over outputs, which are fewer, are sums over voxels.
    A relu's gradient is applied by the pooling then: a maximum shows whether the relu let the voxel through.
    """
    outgoing = layout.network.outgoing(node.name)
    if len(outgoing) != 1 or not is_plain(node) or node.function not in ("linear", "relu"):
        return None
    (edge,) = outgoing
    target = layout.network.node(edge.target)
    # With another edge into the target, its gradient may be overwritten by who is behind that one.
    alone = target.kind in ("sum", "transfer") and len(layout.network.incoming(target.name)) == 1
    blocked = layout.lanes(node.name) > 1 and layout.lanes(target.name) > 1
    return edge if edge.kind in ("max_pool", "max_filter") and alone and blocked else None


def weighed_by_maxima(layout: Layout, node: Node) -> Edge | None:
    """Return the max pooling whose outputs' gradients make that of the filters before a node; None if there is none.

    Of a first layer, so that nobody needs the gradient of the node itself, which is not made.
    """
    pooling, incoming = biased_by_maxima(layout, node), layout.network.incoming(node.name)
    if not layout.training or pooling is None or len(incoming) != 1:
        return None
    (edge,) = incoming
    source, dilations = layout.network.node(edge.source), layout.geometry.dilations
    if edge.kind != "conv" or source.kind != "input" or layout.lanes(source.name) > 1:
        return None
    direct = layout.plan.layers[edge.name].method("weight").algorithm == "direct"
    dense = edge.stride == ONCE and {*dilations[edge.name][1:]} == {1}
    # Strides of dilated windows are those of the voxels between them; planes are met one by one.
    strided = not is_pair_filter(pooling) and dilations[pooling.name] == ONCE
    strided = strided and pooling.stride[0] == 1
    apart, fits = prod(pooling.stride), maxima_gradient.takes
    few = fits(source.channels, edge.size, pooling.size, apart)
    return pooling if direct and dense and strided and few and edge.learn else None
