"""Operations are known for every product and transform, and are those of the textbook."""

from math import log2

import pytest

import znnpy
from znnpy.plan.types import PASSES
from znnpy.profile.flops import flops_by_name

NET = {
    "input": 1,
    "layers": [
        {"conv": {"images": 4, "size": 3, "function": "relu"}},
        {"conv": {"images": 3, "size": 3}},
    ],
}
COUNTED = {"direct", "product", "transform"}


@pytest.mark.parametrize("conv", ["direct", "fft", "spectral"])
def test_every_product_and_transform_is_counted(conv):
    with znnpy.Model(NET, (12, 12, 12), threads=1, conv=conv) as model:
        graph, flops = model.task_graph, flops_by_name(model)
    names = {name for name, kind in zip(graph.names, graph.kinds, strict=True) if kind in COUNTED}
    assert names
    assert names <= set(flops)
    assert all(flops.values())


def test_whole_images_are_transformed_once_for_all_passes():
    with znnpy.Model(NET, (12, 12, 12), threads=1, conv="fft", batch=2) as model:
        flops = flops_by_name(model)
    first, one = (2.5 * size**3 * log2(size**3) for size in (16, 14))
    product = 8 * 14 * 14 * 8
    assert flops["input spectra"] == 2 * first
    assert flops["layer1 inverse"] == 2 * 4 * first
    assert flops["layer1 spectra"] == 2 * 4 * one
    assert flops["conv2 products"] == 2 * 12 * product
    assert flops["conv2 weight gradient"] == 2 * 12 * product + 12 * one
    assert flops["conv2 filter spectra"] == 12 * one


def test_filters_that_are_transformed_on_the_way_count_with_products(monkeypatch):
    monkeypatch.setattr("znnpy.engine.convolution.fft.filters.CACHED_FLOATS", 0)
    with znnpy.Model(NET, (12, 12, 12), threads=1, conv="fft") as model:
        flops, graph = flops_by_name(model), model.task_graph
    assert "conv2 filter spectra" not in {*flops, *graph.names}
    assert flops["conv2 products"] > 12 * 8 * 14 * 14 * 8


def test_minimal_filtering_is_counted():
    layers = [{"conv": {"images": 12, "size": 3}}, {"conv": {"images": 9, "size": 3}}]
    net, direct = {"input": 1, "layers": layers}, dict.fromkeys(PASSES, "direct")
    plan = {"conv1": direct, "conv2": dict.fromkeys(PASSES, "winograd")}
    with znnpy.Model(net, (9, 8, 4), threads=1, plan=plan, batch=2) as model:
        flops, graph = flops_by_name(model), model.task_graph
    kinds = dict(zip(graph.names, graph.kinds, strict=True))
    assert {name for name, kind in kinds.items() if kind in {"winograd", "transform"}} <= set(flops)
    tiles, back = 2 * 3 * 2, 2 * 3 * 3 * 2  # of 4^3 in 9 x 8 x 4 and in 11 x 10 x 6
    products, source, target = 2 * 216 * 12 * 9, 2 * 22 * 108, 2 * 18 * 76
    assert flops["conv2"] == tiles * (products + 12 * source + 9 * target)
    assert flops["conv2 backward"] == back * (products + 9 * source + 12 * target)
    made = flops["conv2 filter points"]
    assert flops["conv2 weight gradient"] == flops["conv2"] + made
