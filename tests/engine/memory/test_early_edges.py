"""Edges that others add to are computed where least memory is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from znnpy_kernels.simd.lanes import LANES

from znnpy import Execution, Model
from znnpy.engine.memory import feature_maps
from znnpy.engine.memory.layout import Layout
from znnpy.engine.memory.tensor_aliases import is_early
from znnpy.network import initial_parameters, load_network
from znnpy.network.types import Edge

SHAPE = (8, 32, 32)
CONV: dict[str, Any] = {"kind": "conv", "size": 3, "padding": "same"}
NODES: dict[str, Any] = {
    "input": {"kind": "input", "channels": 1},
    **{
        name: {"kind": "transfer", "channels": channels, "function": "relu"}
        for name, channels in {
            "large": 16,
            "half": 48,
            "less": 16,
            "grown": 16,
            "joined": 16,
        }.items()
    },
    "output": {"kind": "transfer", "channels": 2},
}
EDGES: dict[str, Any] = {
    "to_large": {**CONV, "source": "input", "target": "large"},
    "to_half": {**CONV, "source": "large", "target": "half", "stride": [1, 2, 2], "padding": 1},
    "to_less": {**CONV, "source": "half", "target": "less"},
    "grow": {
        "kind": "conv_transpose", "source": "less", "target": "grown", "size": [1, 2, 2], "stride": [1, 2, 2],
    },
    "left": {**CONV, "source": "large", "target": "joined"},
    "right": {**CONV, "source": "grown", "target": "joined"},
    "last": {**CONV, "source": "joined", "target": "output"},
}  # fmt: skip


def at_once(layout: Layout) -> dict[str, tuple[Edge, ...]]:
    """Return what is early right behind its source."""
    return {e.source: (e,) for e in layout.network.edges if is_early(layout, e)}


def test_it_is_at_once_where_that_is_as_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small image stands beside both its source and the sum for no more than them."""
    # A block of channels, of which the others have two at least.
    wide = {
        name: {**node, "channels": 2 * LANES}
        for name, node in NODES.items()
        if node["channels"] == 16
    }
    small = NODES | wide | {"half": NODES["half"] | {"channels": LANES}}
    network, found = load_network({"nodes": small, "edges": EDGES}), list[Any]()

    def seen(layout: Layout) -> Any:
        found.append((feature_maps_early(layout), at_once(layout)))
        return found[-1][0]

    feature_maps_early = feature_maps.early_edges
    monkeypatch.setattr(feature_maps, "early_edges", seen)
    lean = Execution(lean=True)
    with Model(network, SHAPE, conv="direct", training=False, threads=1, execution=lean):
        assert found
    for early, first in found:
        assert early == first


def test_less_memory_and_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    network = load_network({"nodes": NODES, "edges": EDGES})
    x = np.random.default_rng(0).standard_normal((1, 1, *SHAPE), np.float32)
    values, sizes = [], []
    for where in (feature_maps.early_edges, at_once):
        seen = list[dict[str, list[str]]]()

        def placed(layout: Layout, where: Any = where, seen: Any = seen) -> Any:
            found = where(layout)
            seen.append({node: [edge.name for edge in edges] for node, edges in found.items()})
            return found

        monkeypatch.setattr(feature_maps, "early_edges", placed)
        lean = Execution(lean=True)
        with Model(
            network, SHAPE, conv="direct", training=False, threads=1, execution=lean
        ) as model:
            model.set_parameters(initial_parameters(network, 0))
            values.append(model.forward(x))
            sizes.append(model.memory)
        # The half image is large while both its source and the sum stand; later it is gone.
        assert seen[0] == ({"large": ["left"]} if where is at_once else {"less": ["left"]})
    assert (values[0] == values[1]).all()
    assert sizes[0] < sizes[1]
