"""What one message carries, and what makes a layer of what is added up."""

from __future__ import annotations

from collections.abc import Iterable

from znnpy.engine.layers.totals import Total
from znnpy.network.types import Network

Bundle = tuple[Total, ...]
"""Pieces of totals that go together; all are numbers of the same size."""


def by_layer(network: Network, totals: Iterable[Total]) -> list[list[Total]]:
    """Totals of the same layer together, in the order in which backward passes make them."""
    targets = {edge.name: edge.target for edge in network.edges}
    layers: dict[str, list[Total]] = {node.name: [] for node in reversed(network.nodes)}
    for total in totals:
        node = targets.get(total.owner, total.owner)
        layers[node if node in layers else node.rpartition(".")[0]].append(total)
    return [layer for layer in layers.values() if layer]
