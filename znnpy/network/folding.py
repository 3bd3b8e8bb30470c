"""Batch normalisation in networks that only predict: part of the filters and biases before it.

There it multiplies and adds what never changes. Where all that a node sums are convolutions, their
filters and its bias can hold that, and nothing is left to compute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.layers.edges import edge_kind
from znnpy.network.types import Network, Node, Norm

Doubles = NDArray[np.float64]


def folded(network: Network) -> Network:
    """The network for prediction alone: the same values by `fold`'s parameters; itself if nothing folds."""
    names = {node.name for node, _ in _folding(network)}
    if not names:
        return network
    nodes = (replace(n, norm=None, bias=True) if n.name in names else n for n in network.nodes)
    return replace(network, nodes=tuple(nodes))


def fold(network: Network, parameters: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Parameters of `folded(network)` from all those of the network, in their dtype.

    Computed in float64 and rounded once.
    """
    found = dict(parameters)
    for node, norm in _folding(network):
        doubles = {
            what: np.float64(found.pop(f"{node.name}.{what}"))
            for what in ("scale", "shift", "running_mean", "running_variance")
            if f"{node.name}.{what}" in found
        }
        factor = doubles.get("scale", 1.0) / np.sqrt(doubles["running_variance"] + norm.epsilon)
        away = found.get(node.name, 0.0) - doubles["running_mean"]
        for edge in network.incoming(node.name):
            filters = found[edge.name]
            found[edge.name] = np.asarray(filters * factor.reshape(-1, 1, 1, 1, 1), filters.dtype)
        bias, dtype = doubles.get("shift", 0.0) + away * factor, filters.dtype
        found[node.name] = np.asarray(bias, dtype)
    return found


def _folding(network: Network) -> list[tuple[Node, Norm]]:
    """The nodes that fold, with their normalisation."""
    return [
        (node, node.norm)
        for node in network.nodes
        if node.norm is not None
        and node.norm.running
        and all(edge_kind(edge.kind).learns for edge in network.incoming(node.name))
    ]
