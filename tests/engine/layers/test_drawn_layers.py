"""Poolings and grouped convolutions of random numbers in float32 beside the oracle.

`ZNNPY_DRAWS=200` draws so many of each.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from against_reference import errors

from znnpy import load_network
from znnpy.geometry import smallest

DRAWS = int(os.environ.get("ZNNPY_DRAWS", "8"))


def triple(rng: np.random.Generator, low: int, high: int) -> list[int]:
    return [int(n) for n in rng.integers(low, high + 1, 3)]


def pool(rng: np.random.Generator) -> tuple[dict[str, Any], int, int]:
    """Keys of a pooling, and how many images enter and leave it."""
    size = triple(rng, 1, 4)
    keys: dict[str, Any] = {"kind": str(rng.choice(["avg_pool", "max_pool"])), "size": size}
    keys["stride"] = triple(rng, 1, 4)
    keys["padding"] = [rng.integers(0, n // 2 + 1, 2).tolist() for n in size]
    if keys["kind"] == "avg_pool":
        keys["count_padding"] = bool(rng.integers(2))
    images = int(rng.choice([1, 3, 16, 19, 33]))
    return keys, images, images


def grouped(rng: np.random.Generator) -> tuple[dict[str, Any], int, int]:
    """The same of a convolution; half of them depthwise."""
    size, groups = triple(rng, 1, 5), int(rng.choice([2, 3, 4, 8, 18, 35]))
    keys: dict[str, Any] = {"kind": "conv", "size": size, "groups": groups}
    keys["stride"], keys["border"] = triple(rng, 1, 3), str(rng.choice(["zeros", "replicate"]))
    keys["sparsity"] = triple(rng, 1, 2)
    keys["padding"] = [rng.integers(0, n, 2).tolist() for n in size]
    if not np.any(keys["padding"]):
        keys["border"] = "zeros"  # no other is taken without padding
    if rng.integers(2) or groups > 8:
        return keys, groups, groups
    return keys, groups * int(rng.integers(1, 4)), groups * int(rng.integers(1, 4))


@pytest.mark.quick(4)
@pytest.mark.parametrize("seed", range(DRAWS))
@pytest.mark.parametrize("draw", [pool, grouped])
def test_passes_beside_the_oracle(draw: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    keys, inputs, outputs = draw(rng)
    net = load_network(
        {
            "nodes": {
                "input": {"kind": "input", "channels": 2},
                "a": {"kind": "transfer", "channels": inputs},
                "b": {"kind": "transfer", "channels": outputs, "bias": False},
                "out": {"kind": "transfer", "channels": 1},
            },
            "edges": {
                "first": {"kind": "conv", "from": "input", "to": "a", "size": [1, 1, 2]},
                "drawn": {"from": "a", "to": "b", **keys},
                "last": {"kind": "conv", "from": "b", "to": "out", "size": 1},
            },
        }
    )
    shape = smallest(net, tuple(triple(rng, 1, 9)))
    found = errors(net, shape, "direct", batch=2, seed=seed, threads=2)
    assert max(found.values()) < 3e-4, (keys, found)
