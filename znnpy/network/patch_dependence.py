"""Tells whether a network's values depend on the patch in which they are computed: padding, statistics of a sample."""

from __future__ import annotations

from collections.abc import Iterator

from znnpy.layers.edges import edge_kind
from znnpy.layers.sizes import sees_beyond
from znnpy.network.types import Network

NAMED = 2  # of each reason, names in the message: enough to find it; others are counted, so it stays one line


def depends_on_patch(network: Network) -> bool:
    """Return whether values depend on where the patch ends (padding) or on all of it (instance, group, layer norm).

    If not, a patch moved by a period (`Geometry.periods`) gives the same values, moved.
    """
    return bool(patch_dependence(network))


def patch_dependence(network: Network) -> str:
    """Return the reasons as text: "padding (conv1, conv2 and 3 more), instance norm (c)"; "" if there are none."""
    found: dict[str, list[str]] = {}
    for reason, name in [*_edges(network), *_nodes(network)]:
        found.setdefault(reason, []).append(name)
    return ", ".join(f"{reason} ({_named(names)})" for reason, names in found.items())


def _edges(network: Network) -> Iterator[tuple[str, str]]:
    for edge in network.edges:
        along = edge_kind(edge.kind).sizes(edge, edge.sparsity)
        if any(map(sees_beyond, along)):
            grows = max(sizes.grows for sizes in along) > 1
            yield (f"ends of {edge.kind}" if grows else "padding"), edge.name
        if reason := edge_kind(edge.kind).of_patch(edge):
            yield reason, edge.name


def _nodes(network: Network) -> Iterator[tuple[str, str]]:
    for node in network.nodes:
        if node.norm is not None and not (node.norm.running or node.norm.of_voxels):
            yield f"{node.norm.kind} norm", node.name


def _named(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
