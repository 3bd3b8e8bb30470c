"""Which passes of convolutions also do what a node would do in passes of its own."""

from __future__ import annotations

from znnpy.engine.memory.feature_maps import Layout
from znnpy.layers.edges import edge_kind
from znnpy.layers.types import BARE
from znnpy.learning.loss import Objective
from znnpy.network.types import Edge, Node


def slope_of(node: Node) -> float:
    """Slope of a node's function where its values are not positive."""
    return {"linear": 1.0, "relu": 0.0}.get(node.function, node.slope)


def is_plain(node: Node) -> bool:
    """Whether a node applies a function to its sum as it is, not normalised."""
    return node.kind == "transfer" and node.norm is None


def applied_forward(layout: Layout, edge: Edge) -> Node | None:
    """The node whose bias and function an edge's forward pass applies: it alone converges there."""
    node = layout.network.node(edge.target)
    traits = layout.traits(edge, "forward")
    known = traits.forward_functions
    if edge.kind == "conv_transpose" and traits.overlaps:
        known = ()
    alone = len(layout.network.incoming(node.name)) == 1
    return node if alone and is_plain(node) and node.function in known else None


def applied_backward(layout: Layout, edge: Edge) -> Node | None:
    """The node whose gradient an edge's data gradient finishes: nothing else reads its images."""
    if layout.folded(edge):
        return None
    node = layout.network.node(edge.source)
    known = layout.traits(edge, "gradient").backward_functions
    alone = len(layout.network.outgoing(node.name)) == 1
    return node if alone and is_plain(node) and node.function in known else None


def is_pair_filter(edge: Edge) -> bool:
    """Whether an edge takes maxima over at most two voxels along each axis, at every voxel inside."""
    alike = edge.kind in ("max_filter", "max_pool") and edge.padding == BARE
    return alike and max(edge.size) <= 2 and max(edge.stride) == 1


def masked_by_maxima(layout: Layout, edge: Edge) -> Node | None:
    """The node whose gradient a max-filter finishes: nothing else reads its images.

    A maximum is the value of the voxel that won, so it tells whether a relu let that one through.
    """
    node = layout.network.node(edge.source)
    alone = len(layout.network.outgoing(node.name)) == 1
    known = is_plain(node) and node.function in ("linear", "relu")
    return node if alone and known and is_pair_filter(edge) else None


def finished_forward(layout: Layout, node: Node) -> bool:
    """Whether bias and function are in the node's images once its edges have brought them."""
    return any(
        edge_kind(edge.kind).learns and applied_forward(layout, edge) is node
        for edge in layout.network.incoming(node.name)
    )


def finished_backward(layout: Layout, node: Node, objective: Objective | None) -> bool:
    """Whether a node's gradient and that of its bias need no pass of their own."""
    outgoing = layout.network.outgoing(node.name)
    if not outgoing:
        return objective is not None and biased_in_loss(node, objective)
    if masked_by_maxima(layout, outgoing[0]) is node:
        return True
    return any(
        edge_kind(edge.kind).learns and applied_backward(layout, edge) is node for edge in outgoing
    )


def biased_in_loss(node: Node, objective: Objective) -> bool:
    """Whether the loss adds up the gradient of an output node's bias."""
    linear = is_plain(node) and node.function == "linear"
    return linear and objective.kernel is not None and objective.kernel.biases
