"""Which edges bring a tensor that exists already, so that nothing is copied, and which nodes need one beside it."""

from __future__ import annotations

from collections.abc import Sequence

from znnpy.engine.memory.layout import Layout
from znnpy.layers.activation_functions import function_of
from znnpy.network.types import Edge, Network, Node

SUMS = ("sum", "transfer")  # nodes that add what their edges bring


def first_of(edges: Sequence[Edge]) -> Edge:
    """Return the edge whose output the others are added to: the first that is no identity, else the first."""
    # An identity's output is its source's activation, which other nodes read: it cannot be added
    # to.
    return next((edge for edge in edges if edge.kind != "identity"), edges[0])


def first_back(network: Network, edges: Sequence[Edge]) -> Edge:
    """Return the outgoing edge whose data gradient the others are added to: the first that is no identity.

    Of identities alone, the first whose node has no other edge: that node's gradient can take the sum itself.
    """
    found = first_of(edges)
    return next(
        (edge for edge in edges if found.kind == "identity" and is_alone(network, edge)), found
    )


def adds(layout: Layout, edge: Edge) -> bool:
    """Return whether a convolution adds what it makes to what the first edge into its target has left there.

    Where memory counts for most: otherwise both are made side by side, and added up after that.
    """
    incoming = layout.network.incoming(edge.target)
    # Bands of groups are none of the network's edges: they are made side by side, as their layer.
    own = edge in incoming and edge is not first_of(incoming)
    return own and _add_up(layout, incoming)


def is_early(layout: Layout, edge: Edge) -> bool:
    """Return whether an edge is computed before its target's turn (`early_edges`): others will add to it.

    So its source need not live until then.
    """
    incoming = layout.network.incoming(edge.target)
    return edge is first_of(incoming) and _add_up(layout, incoming)


def _add_up(layout: Layout, edges: Sequence[Edge]) -> bool:
    """Return whether all edges into a node are convolutions that can add to what is there."""
    if not layout.lean or layout.training or len(edges) < 2:
        return False
    return layout.network.node(edges[0].target).kind in SUMS and all(
        edge.kind == "conv"
        and layout.traits(edge, "forward").adds
        and not layout.bands(edge)
        and layout.lanes(edge.source) == layout.lanes(edge.target) != 1
        for edge in edges
    )


def is_alone(network: Network, edge: Edge) -> bool:
    """Return whether an identity edge is the only one into a node that would add others."""
    target = network.node(edge.target)
    return (
        edge.kind == "identity" and target.kind in SUMS and len(network.incoming(target.name)) == 1
    )


def is_read_there(layout: Layout, edge: Edge) -> bool:
    """Return whether a node's own pass reads its source's values through an identity edge: before a norm or a function.

    So pre-activation nets copy nothing.
    """
    node, function = layout.network.node(edge.target), layout.network.node(edge.target).function
    # Without a norm, what is linear without a bias has no pass; softmax works in place, and functions that need the
    # sum leave it, bias included, where it lay.
    entry = function_of(function)
    plain = entry.pointwise and not entry.needs_sum and (function != "linear" or node.bias)
    return (
        is_alone(layout.network, edge)
        and node.kind == "transfer"
        and (node.norm is not None or plain)
        and layout.lanes(edge.source) == layout.lanes(node.name)
    )


def is_passed_on(network: Network, edge: Edge) -> bool:
    """Return whether an edge's output is its source's activation itself, without a copy."""
    into = network.node(edge.target).kind
    arriving = network.incoming(edge.target)
    added = into in SUMS and edge is not first_of(arriving)
    # Factors are only read: the product is written elsewhere, as the way back needs them.
    multiplied = into == "product" and len(arriving) > 1
    return edge.kind == "identity" and (into == "concat" or added or multiplied)


def is_first_addend(layout: Layout, edge: Edge) -> bool:
    """Return whether the first sum of a node reads its source's values through an identity edge: all others are, too.

    So sums of what exists already, as in residual blocks, begin with no copy.
    """
    arriving = layout.network.incoming(edge.target)
    return (
        len(arriving) > 1
        and edge is first_of(arriving)
        and all(other.kind == "identity" for other in arriving)
        and layout.network.node(edge.target).kind in SUMS
        and layout.lanes(edge.source) == layout.lanes(edge.target)
    )


def sum_in_place(layout: Layout, name: str) -> str | None:
    """Return the node in whose memory a node's values lie: the sum that alone reads them.

    Where memory counts for most. One of the first two addends, which are read before anything is written.
    """
    edges = layout.network.outgoing(name)
    if not layout.lean or layout.training or len(edges) != 1 or layout.home(name):
        return None
    target = edges[0].target
    arriving = layout.network.incoming(target)
    added = is_first_addend(layout, arriving[0]) and edges[0] in arriving[:2]
    known = layout.network.node(name).kind != "input"
    own = layout.lanes(name) == layout.lanes(target)
    return (
        target if added and known and own and _first_such(layout, arriving[:2], edges[0]) else None
    )


def _first_such(layout: Layout, edges: Sequence[Edge], edge: Edge) -> bool:
    """Return whether no edge before this one has a source that nothing else reads, either: only one can lie there."""
    return not any(
        len(layout.network.outgoing(other.source)) == 1
        and layout.network.node(other.source).kind != "input"
        and not layout.home(other.source)
        for other in edges[: edges.index(edge)]
    )


def is_passed_back(network: Network, edge: Edge) -> bool:
    """Return whether an edge's data gradient is its target's gradient itself, without a copy."""
    added = edge is not first_back(network, network.outgoing(edge.source))
    return edge.kind == "identity" and network.node(edge.target).kind in SUMS and added


def hands_back(network: Network, edge: Edge) -> bool:
    """Return whether the memory of a node's gradient becomes, once the node is done, that of an edge's source."""
    alone = is_alone(network, edge) and network.node(edge.source).kind != "input"
    return alone and edge is first_back(network, network.outgoing(edge.source))


def keeps_sum(layout: Layout, node: Node) -> bool:
    """Return whether a node's sum is kept beside its values, because the backward pass needs both."""
    needed = node.norm is not None or function_of(node.function).needs_sum
    return layout.training and node.kind == "transfer" and needed


def apart(layout: Layout, node: Node) -> bool:
    """Return whether what a node's first edge brings is kept beside the node's values."""
    factors = node.kind == "product" and len(layout.network.incoming(node.name)) > 1
    return node.kind == "concat" or factors or keeps_sum(layout, node)
