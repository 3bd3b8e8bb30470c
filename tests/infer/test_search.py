"""The chosen patch fits, is no dearer than others, and depends on the memory alone."""

from __future__ import annotations

import math

import pytest

from znnpy.errors import PlanError
from znnpy.infer.blocks import Grid, Region
from znnpy.infer.search import best_patch, candidates, sizes
from znnpy.network import load_network

NETWORK = load_network(
    {
        "input": 1,
        "layers": [
            {"conv": {"images": 8, "size": 5, "function": "relu"}},
            {"max_filter": 2},
            {"conv": {"images": 2, "size": 3}},
        ],
    }
)
REGION = Region((0, 0, 0), (40, 150, 150))
MIB = 1 << 20


def needs(candidate):
    return candidate.bytes(2)


@pytest.mark.parametrize("conv", ["auto", "direct", "spectral"])
def test_best_of_those_that_fit(conv):
    last = math.inf
    for limit in (4 * MIB, 8 * MIB, 64 * MIB):
        chosen = best_patch(NETWORK, REGION, conv, needs, limit)
        assert needs(chosen) <= limit
        cost = chosen.seconds * Grid(chosen.patch).count(REGION)
        assert cost <= last * 1.03
        last = cost
        fitting = [c for c in candidates(NETWORK, REGION, conv) if needs(c) <= limit]
        assert cost <= 1.03 * min(c.seconds * Grid(c.patch).count(REGION) for c in fitting)


def test_patches_share_the_region_evenly():
    for patch in sizes(REGION, NETWORK):
        counts = [-(-n // p) for n, p in zip(REGION.shape, patch, strict=True)]
        waste = math.prod(k * p / n for k, p, n in zip(counts, patch, REGION.shape, strict=True))
        assert waste < 1.2 or min(patch) < 12


def test_too_little_memory_names_what_would_do():
    with pytest.raises(PlanError, match=r"at least .* --max-memory 1MiB or more"):
        best_patch(NETWORK, REGION, "direct", needs, 1000)
