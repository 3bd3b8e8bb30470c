"""Layers whose filters have one tap, in float32 beside the oracle: strides, the other way round, batches."""

from __future__ import annotations

from typing import Any

import pytest
from against_reference import errors

from znnpy import load_network
from znnpy.network.types import Triple

CASES: list[dict[str, Any]] = [
    {},
    {"stride": [1, 2, 1]},
    {"kind": "conv_transpose", "stride": [1, 2, 1]},
    {"kind": "conv_transpose"},
    {"groups": 1, "sparsity": [1, 2, 2]},
]


@pytest.mark.parametrize(("batch", "shape"), [(1, (4, 7, 8)), (3, (1, 7, 8)), (1, (1, 75, 80))])
@pytest.mark.parametrize("keys", CASES)
def test_passes_beside_the_oracle(keys: dict[str, Any], batch: int, shape: Triple) -> None:
    """The last shape is large enough for several slabs of rows."""
    step = keys.get("stride", 1) if "kind" in keys else 1
    net = load_network(
        {
            "nodes": {
                "input": {"kind": "input", "channels": 2},
                "a": {"kind": "transfer", "channels": 19, "function": "relu"},
                "b": {"kind": "transfer", "channels": 37, "function": "relu"},
                "out": {"kind": "transfer", "channels": 2},
            },
            "edges": {
                "first": {"kind": "conv", "from": "input", "to": "a", "size": 2, "stride": step},
                "one": {"kind": "conv", "from": "a", "to": "b", "size": 1, **keys},
                "last": {"kind": "conv", "from": "b", "to": "out", "size": [1, 1, 3]},
            },
        }
    )
    found = errors(net, shape, "direct", batch=batch, threads=2)
    assert max(found.values()) < 2e-5, found
