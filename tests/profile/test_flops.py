"""Operations are known for every product and transform, and are those of the textbook."""

import json
from functools import partial
from math import log2

import pytest
from launched import launched
from znnpy_kernels.simd.lanes import LANES

import znnpy
from znnpy.engine.tasks.task_identity import PASS_OF, Identity, Kind, Part, Pass, identities
from znnpy.plan.types import PASSES
from znnpy.profile.command import convolution_flops, flops_by_task

NET = {
    "input": 1,
    "layers": [
        {"conv": {"channels": 4, "size": 3, "function": "relu"}},
        {"conv": {"channels": 3, "size": 3}},
    ],
}
COUNTED = {Kind.DIRECT, Kind.PRODUCT, Kind.TRANSFORM, Kind.WINOGRAD}
TILES = {"forward_tile": (8, 8, 8), "gradient_tile": (8, 8, 8), "weight_tile": (8, 8, 8)}
PLANS = {
    "kept tiles": dict.fromkeys(PASSES, "spectral") | TILES,
    "other tiles": dict.fromkeys(PASSES, "spectral") | TILES | {"weight_tile": (6, 6, 6)},
    "fft": dict.fromkeys(PASSES, "fft"),
    "fft but for the forward pass": dict.fromkeys(PASSES, "fft") | {"forward": "direct"},
    "fft but for filters": dict.fromkeys(PASSES, "fft") | {"weight": "direct"},
    "direct": dict.fromkeys(PASSES, "direct"),
}


def counted(model):
    """Tasks whose operations are known, as the model's graph has them."""
    return {what for what in identities(model.task_graph) if what.kind in COUNTED}


@pytest.mark.parametrize("name", PLANS)
def test_every_product_and_transform_is_counted(name):
    plan = dict.fromkeys(("conv1", "conv2"), PLANS[name])
    with znnpy.Model(NET, (12, 12, 12), threads=1, plan=plan) as model:
        tasks, flops = counted(model), flops_by_task(model)
    assert tasks
    assert tasks <= set(flops)
    assert all(flops.values())


@pytest.mark.parametrize("learns", [True, False])
def test_lines_are_counted_whether_or_not_one_task_makes_both_gradients(learns):
    """Behind layers that do not learn there is no data gradient."""
    lines = [{"conv": {"channels": 2 * LANES, "size": [3, 1, 1]}}] * 2
    first = {"conv": {"channels": LANES, "size": 1, "learn": learns, "bias": learns}}
    net = {"input": 1, "layers": [first, *lines]}
    with znnpy.Model(net, (8, 4, 4), threads=1, conv="winograd") as model:
        tasks, flops = counted(model), flops_by_task(model)
    assert {it.owner for it in tasks if it.part is Part.WINOGRAD} == {"conv2", "conv3"}
    assert tasks <= set(flops)


def test_whole_images_are_transformed_once_for_all_passes():
    with znnpy.Model(NET, (12, 12, 12), threads=1, conv="fft", batch=2) as model:
        flops = flops_by_task(model)
    first, one = (2.5 * size**3 * log2(size**3) for size in (16, 14))
    product = 8 * 14 * 14 * 8
    forward, weight = partial(_task, flops, Pass.FORWARD), partial(_task, flops, Pass.WEIGHT)
    assert forward("input", Part.IMAGE_SPECTRA) == 2 * first
    assert forward("layer1", Part.INVERSE) == 2 * 4 * first
    assert forward("layer1", Part.IMAGE_SPECTRA) == 2 * 4 * one
    assert forward("conv2", Part.PRODUCTS) == 2 * 12 * product
    assert weight("conv2", Part.PRODUCTS) == 2 * 12 * product + 12 * one
    assert forward("conv2", Part.FILTER_SPECTRA) == 12 * one


def _task(flops, step, owner, part):
    return flops[Identity(owner, step, part)]


def test_filters_that_are_transformed_on_the_way_count_with_products(monkeypatch):
    monkeypatch.setattr("znnpy.engine.convolution.fft.filters.CACHED_FLOATS", 0)
    with znnpy.Model(NET, (12, 12, 12), threads=1, conv="fft") as model:
        flops, graph = flops_by_task(model), model.task_graph
    assert Part.FILTER_SPECTRA not in {what.part for what in {*flops, *identities(graph)}}
    assert _task(flops, Pass.FORWARD, "conv2", Part.PRODUCTS) > 12 * 8 * 14 * 14 * 8


def test_minimal_filtering_is_counted():
    layers = [{"conv": {"channels": 12, "size": 3}}, {"conv": {"channels": 9, "size": 3}}]
    net, direct = {"input": 1, "layers": layers}, dict.fromkeys(PASSES, "direct")
    plan = {"conv1": direct, "conv2": dict.fromkeys(PASSES, "winograd")}
    with znnpy.Model(net, (9, 8, 4), threads=1, plan=plan, batch=2) as model:
        flops, tasks = flops_by_task(model), counted(model)
    assert Kind.WINOGRAD in {what.kind for what in tasks}
    assert tasks <= set(flops)
    tiles, back = 2 * 3 * 2, 2 * 3 * 3 * 2  # of 4^3 in 9 x 8 x 4 and in 11 x 10 x 6
    products, source, target = 2 * 216 * 12 * 9, 2 * 22 * 108, 2 * 18 * 76
    passes = {step: _task(flops, step, "conv2", Part.WINOGRAD) for step in PASS_OF.values()}
    assert passes[Pass.FORWARD] == tiles * (products + 12 * source + 9 * target)
    assert passes[Pass.BACKWARD] == back * (products + 9 * source + 12 * target)
    made = {_task(flops, step, "conv2", Part.FILTER_POINTS) for step in list(PASS_OF.values())[:2]}
    tiled = _task(flops, Pass.WEIGHT, "conv2", Part.TILES)
    assert {tiled + passes[Pass.WEIGHT] - passes[Pass.FORWARD]} == made
    assert tiled == tiles * (12 * source + 9 * target)


RANKS = """
import json, sys
from znnpy.distributed.world import World
from znnpy.engine import Hardware, Model, Training
from znnpy.engine.tasks.task_identity import Pass, identities
from znnpy.profile.command import convolution_flops, flops_by_task

with World.open() as world:
    hardware = Hardware(ranks=world, distributed={"strategy": sys.argv[2]})
    with Model(json.loads(sys.argv[1]), 4, batch=4, threads=1, conv="direct",
               training=Training(microbatch=1), hardware=hardware) as model:
        flops, names = flops_by_task(model), {"conv1", "conv2"}
        weight = {it for it in identities(model.task_graph) if it.serves is Pass.WEIGHT and it.owner in names}
        whole = convolution_flops(model)
    counted = [[it.owner, flops.get(it), whole[it.owner]] for it in weight if it.kind == "direct"]
    print(json.dumps(sorted(counted)), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["tree", "multicolor"])
def test_each_rank_counts_the_operations_of_its_own_samples(strategy):
    lines = [json.loads(line) for line in launched(2, RANKS, json.dumps(NET), strategy)]
    with znnpy.Model(NET, 4, batch=2, threads=1, conv="direct") as model:
        alone = {
            name: [name, _task(flops_by_task(model), Pass.WEIGHT, name, Part.DIRECT), whole]
            for name, whole in convolution_flops(model).items()
        }
    assert lines == [[alone["conv1"], alone["conv2"]]] * 2
