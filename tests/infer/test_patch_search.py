"""The chosen patch fits, is no dearer than others, and depends on the memory alone."""

from __future__ import annotations

import math

import pytest

from znnpy.errors import PlanError
from znnpy.infer import patch_search
from znnpy.infer.blocks import Region
from znnpy.infer.grid import Grid
from znnpy.infer.patch_search import best_patch, candidates, sizes
from znnpy.network import load_network

NETWORK = load_network(
    {
        "input": 1,
        "layers": [
            {"conv": {"channels": 8, "size": 5, "function": "relu"}},
            {"max_filter": 2},
            {"conv": {"channels": 2, "size": 3}},
        ],
    }
)
REGION = Region((0, 0, 0), (40, 150, 150))
MIB = 1 << 20


def needs(candidate):
    return candidate.bytes(2)


@pytest.mark.slow
@pytest.mark.parametrize("conv", ["auto", "direct", "spectral"])
def test_best_of_those_that_fit(conv):
    last = math.inf
    for limit in (4 * MIB, 8 * MIB, 64 * MIB):
        chosen = best_patch(NETWORK, REGION, conv, needs, limit)
        assert needs(chosen) <= limit
        cost = chosen.cost(REGION)
        assert cost <= last * 1.03
        last = cost
        fitting = [c for c in candidates(NETWORK, REGION, conv) if needs(c) <= limit]
        assert cost <= 1.03 * min(c.cost(REGION) for c in fitting)


def test_patches_share_the_region_evenly():
    for patch in sizes(REGION, NETWORK):
        counts = [-(-n // p) for n, p in zip(REGION.shape, patch, strict=True)]
        waste = math.prod(k * p / n for k, p, n in zip(counts, patch, REGION.shape, strict=True))
        assert waste < 1.2 or min(patch) < 12


CONV = {"channels": 8, "function": "relu"}
NETS = {
    "last of 1": [{"conv": {"channels": 32, "size": 5}}, {"conv": {"channels": 2, "size": 1}}],
    "all of 1": [{"conv": CONV | {"size": 1}}, {"conv": {"channels": 1, "size": 1}}],
    "two layers": [{"conv": CONV | {"size": 3}}, {"conv": {"channels": 1, "size": 3}}],
    "planes": [{"conv": CONV | {"size": [1, 5, 5]}}, {"conv": {"channels": 1, "size": [1, 5, 5]}}],
    "flat view": [{"conv": CONV | {"size": [5, 1, 1]}}, {"conv": {"channels": 1, "size": 1}}],
}


@pytest.mark.quick(6)
@pytest.mark.parametrize("conv", ["auto", "direct"])
@pytest.mark.parametrize("shape", [(64, 64, 64), (100, 200, 200), (2, 3, 200), (1, 1, 1)])
@pytest.mark.parametrize("name", NETS)
def test_runs_are_few_and_of_the_order_of_the_field_of_view(name, shape, conv):
    network, region = load_network({"input": 1, "layers": NETS[name]}), Region((0, 0, 0), shape)
    chosen = best_patch(network, region, conv, needs, 1 << 30)
    (view,) = chosen.geometry.fields_of_view.values()
    assert Grid(chosen.patch).count(region) <= 8
    for size, extent, seen in zip(chosen.patch, shape, view, strict=True):
        assert min(extent, seen / 2) <= size <= extent


def test_patches_below_the_field_of_view_where_memory_forces_it():
    layers = [{"conv": CONV | {"size": 5}} for _ in range(6)]
    network, region = load_network({"input": 1, "layers": layers}), Region((0, 0, 0), (90, 90, 90))
    least = min(needs(c) for c in candidates(network, region, "direct"))
    chosen = best_patch(network, region, "direct", needs, least + 1000)
    assert max(chosen.patch) < 12


def test_too_little_memory_names_what_would_do():
    with pytest.raises(PlanError, match=r"at least .* --max-memory 1MiB or more"):
        best_patch(NETWORK, REGION, "direct", needs, 1000)


WIDE = {
    "input": 1,
    "layers": [{"conv": {"channels": 64, "size": 3}}, {"conv": {"channels": 1, "size": 1}}],
}


@pytest.mark.parametrize(("worth", "more"), [(1 << 62, False), (1 << 20, True)])
def test_a_little_time_goes_for_much_memory(monkeypatch, worth, more):
    network, region = load_network(WIDE), Region((0, 0, 0), (96, 96, 96))
    # A byte is worth next to nothing, or much.
    monkeypatch.setattr(patch_search, "SAVED", worth)
    monkeypatch.setattr(patch_search, "LITTLE", 128 << 20)
    found = candidates(network, region, "direct")
    quickest = min(found, key=lambda c: c.cost(region))
    chosen = best_patch(network, region, "direct", needs, 1 << 34)
    saved, spent = needs(quickest) - needs(chosen), chosen.cost(region) - quickest.cost(region)
    if more:
        assert saved >= max(patch_search.LITTLE, spent * worth)
        assert chosen.cost(region) > 1.03 * quickest.cost(region)
    else:
        assert chosen.cost(region) <= 1.03 * quickest.cost(region)
    # Little is never worth more than a few per cent.
    monkeypatch.setattr(patch_search, "LITTLE", 1 << 40)
    assert best_patch(network, region, "direct", needs, 1 << 34).cost(
        region
    ) <= 1.03 * quickest.cost(region)
