"""Pooled nodes come right behind their sources."""

from __future__ import annotations

from typing import Any

import numpy as np

from znnpy import reference
from znnpy.geometry import fit
from znnpy.network import load_network, parameter_shapes
from znnpy.network.pooling_first import pooling_first
from znnpy.network.types import Network

HALF = {"size": 2, "stride": 2}
NODES: dict[str, Any] = {
    "input": {"kind": "input", "channels": 1},
    "a": {"kind": "transfer", "channels": 2, "function": "relu"},
    "b": {"kind": "transfer", "channels": 2, "function": "relu"},
    "c": {"kind": "transfer", "channels": 2, "function": "relu"},
    "d": {"kind": "transfer", "channels": 2, "function": "relu"},
    "small": {"kind": "sum", "channels": 2},
    "smaller": {"kind": "sum", "channels": 2},
    "same": {"kind": "sum", "channels": 2},
    "output": {"kind": "transfer", "channels": 2, "function": "linear"},
}
EDGES: dict[str, Any] = {
    "to_a": {"kind": "conv", "source": "input", "target": "a", "size": 3},
    "to_b": {"kind": "conv", "source": "a", "target": "b", "size": 3, "stride": 2, "padding": 1},
    "to_c": {"kind": "conv", "source": "b", "target": "c", "size": 3, "stride": 2, "padding": 1},
    "to_d": {"kind": "conv", "source": "c", "target": "d", "size": 1},
    "to_small": {"kind": "avg_pool", "source": "a", "target": "small", **HALF},
    "to_smaller": {"kind": "max_pool", "source": "small", "target": "smaller", **HALF},
    "to_same": {"kind": "avg_pool", "source": "c", "target": "same", "size": 1, "stride": 1},
    "to_left": {"kind": "conv", "source": "smaller", "target": "output", "size": 1},
    "to_right": {"kind": "conv", "source": "same", "target": "output", "size": 1},
}


def order(network: Network) -> list[str]:
    return [node.name for node in network.nodes]


def values(network: Network) -> Any:
    geometry, rng = fit(network, (3, 3, 3)), np.random.default_rng(0)
    shapes = parameter_shapes(network)
    parameters = {name: rng.standard_normal(shapes[name]) for name in sorted(shapes)}
    x = rng.standard_normal((1, 1, *geometry.input_shapes["input"]))
    return reference.forward(network, geometry, parameters, {"input": x})["output"]


def test_order_changes_and_values_do_not() -> None:
    network = load_network({"nodes": NODES, "edges": EDGES})
    found = pooling_first(network)
    assert order(network).index("b") < order(network).index("small")
    names = order(found)
    assert names[names.index("a") :][:3] == ["a", "small", "smaller"]
    assert sorted(names) == sorted(order(network))
    assert names.index("same") > names.index("d") > names.index("c")
    assert found.edges == network.edges
    assert (values(network) == values(found)).all()
    assert pooling_first(found) == found
