"""Operations are known for every product and transform, and are those of the textbook."""

from math import log2

import pytest

import znnpy
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
    monkeypatch.setattr("znnpy.engine.fft.filters.CACHED_FLOATS", 0)
    with znnpy.Model(NET, (12, 12, 12), threads=1, conv="fft") as model:
        flops, graph = flops_by_name(model), model.task_graph
    assert "conv2 filter spectra" not in {*flops, *graph.names}
    assert flops["conv2 products"] > 12 * 8 * 14 * 14 * 8
