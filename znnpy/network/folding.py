"""Folds batch normalisation and weight standardisation into filters and biases, for networks that only predict.

In prediction, batch normalisation multiplies and adds constants. Where all edges into a node are convolutions, their
filters and its bias take these constants up. Filters are standardised once, not in every pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.layers.edges import edge_kind
from znnpy.layers.normalization import standardized
from znnpy.network.types import Network, Node, Norm

Doubles = NDArray[np.float64]


def folded(network: Network) -> Network:
    """Return the network without what `fold` makes part of its parameters; itself if nothing folds."""
    names = {node.name for node, _ in _folding(network)}
    if not names and not any(edge.weight_standardization for edge in network.edges):
        return network
    nodes = (replace(n, norm=None, bias=True) if n.name in names else n for n in network.nodes)
    edges = (replace(edge, weight_standardization=False) for edge in network.edges)
    return replace(network, nodes=tuple(nodes), edges=tuple(edges))


def fold(network: Network, parameters: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the parameters of `folded(network)` from those of the network.

    Computed in float64 and rounded once, to the parameters' common dtype. Arrays that do not change are shared, and
    stay in their file where they lie in one (`FileArray`); others that only `parameters` holds go one by one, if
    nobody else holds that.
    """
    # By their dtypes, as some may lie in files.
    found, dtype = dict(parameters), np.result_type(*(it.dtype for it in parameters.values()))
    del parameters
    factors = dict[str, Doubles]()  # of filters, by their edges
    for node, norm in _folding(network):
        doubles = {
            what: np.float64(found.pop(f"{node.name}.{what}"))
            for what in ("scale", "shift", "running_mean", "running_variance")
            if f"{node.name}.{what}" in found
        }
        factor = doubles.get("scale", 1.0) / np.sqrt(doubles["running_variance"] + norm.epsilon)
        away = found.get(node.name, 0.0) - doubles["running_mean"]
        factors |= {edge.name: factor for edge in network.incoming(node.name)}
        found[node.name] = doubles.get("shift", 0.0) + away * factor
    for edge in network.edges:
        if edge.weight_standardization:
            found[edge.name] = standardized(np.asarray(found[edge.name], np.float64))
        if edge.name in factors:
            found[edge.name] = _scaled(found[edge.name], factors[edge.name], dtype)
    # What keeps its dtype stays where it is, in a file too.
    return {
        name: array if array.dtype == dtype else np.asarray(array, dtype)
        for name, array in found.items()
    }


def _scaled(filters: NDArray[Any], factor: Doubles, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return filters (out, in, z, y, x) times a factor for each output, multiplied in float64 and then rounded."""
    found = np.empty(filters.shape, dtype)
    np.multiply(
        filters, factor.reshape(-1, 1, 1, 1, 1), found, dtype=np.float64, casting="same_kind"
    )
    return found


def _folding(network: Network) -> list[tuple[Node, Norm]]:
    """Return the nodes whose normalisation can be folded, with it."""
    return [
        (node, node.norm)
        for node in network.nodes
        if node.norm is not None
        and node.norm.running
        and all(edge_kind(edge.kind).learns for edge in network.incoming(node.name))
    ]
