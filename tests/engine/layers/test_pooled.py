"""Average pooling and padded max-pooling in float32 beside the oracle, and their bits over threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from against_reference import errors

from znnpy import Model, load_network

POOLS: list[dict[str, Any]] = [
    {"kind": "avg_pool", "size": 2},
    {"kind": "avg_pool", "size": [1, 2, 2]},
    {"kind": "avg_pool", "size": 3, "stride": 2, "padding": 1},
    {"kind": "avg_pool", "size": 3, "stride": [2, 1, 2], "padding": [[1, 0], [1, 1], [0, 1]],
     "count_padding": False},
    {"kind": "avg_pool", "size": [2, 3, 4], "stride": 1, "padding": "same"},
    {"kind": "max_pool", "size": 3, "stride": 2, "padding": 1},
    {"kind": "max_pool", "size": 2, "stride": 1, "padding": "same"},
    {"kind": "max_pool", "size": [1, 3, 4], "stride": [1, 2, 1], "padding": [0, 1, [2, 1]]},
]  # fmt: skip


def network(pool: dict[str, Any], images: int = 19, output: int = 3, function: str = "relu") -> Any:
    """A pooling between convolutions, from a relu."""
    return load_network(
        {
            "nodes": {
                "input": {"kind": "input", "channels": 1},
                "a": {"kind": "transfer", "channels": images, "function": function},
                "b": {"kind": "sum", "channels": images},
                "out": {"kind": "transfer", "channels": output},
            },
            "edges": {
                "first": {"kind": "conv", "from": "input", "to": "a", "size": [1, 2, 3]},
                "pool": {"from": "a", "to": "b", **pool},
                "last": {"kind": "conv", "from": "b", "to": "out", "size": [2, 1, 3]},
            },
        }
    )


@pytest.mark.quick(4)
@pytest.mark.parametrize("pool", POOLS, ids=str)
def test_passes_beside_the_oracle(pool: dict[str, Any]) -> None:
    found = errors(network(pool), (3, 4, 5), "direct", batch=2, threads=2)
    assert max(found.values()) < 1e-4, found


@pytest.mark.parametrize(
    ("images", "function"), [(2, "linear"), (19, "linear"), (40, "linear"), (40, "relu")]
)
@pytest.mark.parametrize("pool", POOLS[5:], ids=str)
def test_bias_of_a_layer_before_maxima(pool: dict[str, Any], images: int, function: str) -> None:
    net = network(pool, images, function=function)
    found = errors(net, (3, 4, 5), "direct", batch=2, threads=2)
    assert max(found.values()) < 1e-4, found


@pytest.mark.parametrize("pool", [POOLS[3], POOLS[5]], ids=str)
def test_bits_do_not_depend_on_threads(pool: dict[str, Any]) -> None:
    net, rng = network(pool), np.random.default_rng(0)
    results = []
    for threads in (1, 3, 8):
        with Model(net, (9, 8, 7), threads=threads, conv="direct", loss="square", seed=1) as model:
            if not results:
                x = rng.standard_normal((1, 1, *model.input_shape)).astype(np.float32)
                target = rng.standard_normal((1, 3, 9, 8, 7)).astype(np.float32)
            for _ in range(3):
                model.step(x, target, learning_rate=0.01)
            results.append({name: a.tobytes() for name, a in model.parameters.items()})
    assert all(found == results[0] for found in results)
