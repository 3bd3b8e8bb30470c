"""Convolutions that add to what others have left at their target, where memory counts for most."""

from functools import cache
from importlib import import_module

import numpy as np
import pytest

from znnpy import Execution, Model, reference
from znnpy.engine.tasks.task_identity import Part, identities
from znnpy.geometry import fit
from znnpy.layers.types import Norm
from znnpy.network import parameter_shapes
from znnpy.network.types import Edge, Network, Node

FLAT, CUBE, LEAN = (1, 3, 3), (3, 3, 3), Execution(lean=True)
LAYER = {"gradient": "direct", "weight": "direct", "reason": ""}


def network(size, images=(17, 33), **last):
    """Two images of other numbers of channels, of which `out` is a sum of three convolutions."""
    first, second = images
    nodes = (
        Node("input", "input", 2),
        Node("a", "transfer", first, function="relu"),
        Node("b", "transfer", second, function="leaky_relu"),
        Node("out", "transfer", 20, function="leaky_relu", slope=0.2, **last),
    )
    numbers = {"size": size, "padding": "same"}
    edges = (
        Edge("ca", "conv", "input", "a", **numbers),
        Edge("cb", "conv", "a", "b", **numbers),
        Edge("one", "conv", "a", "out", **numbers),
        Edge("two", "conv", "b", "out", **numbers),
        Edge("three", "conv", "b", "out", size=size, padding="same", sparsity=(2, 1, 2)),
    )
    return Network(nodes, edges)


@cache
def drawn(net, output):
    """Random parameters and inputs, and what should be made of them."""
    rng, geometry = np.random.default_rng(1), fit(net, output)
    parameters = {
        name: (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        for name, shape in parameter_shapes(net).items()
    }
    x = rng.standard_normal((2, 2, *geometry.input_shapes["input"])).astype(np.float32)
    return parameters, x, reference.forward(net, geometry, parameters, {"input": x})["out"]


def outcome(net, output, by, threads=2, execution=LEAN):
    """What a model makes of random values, what it should, and the kinds of its tasks of `out`."""
    parameters, x, expected = drawn(net, output)
    plan = {e.name: LAYER | {"forward": by.get(e.name, "direct")} for e in net.edges}
    for layer in plan.values():
        layer |= {"forward_tile": [8, 8, 8]} if layer["forward"] == "spectral" else {}
    given = {"batch": 2, "threads": threads, "training": False, "execution": execution}
    with Model(net, output, plan=plan, **given) as model:
        model.set_parameters(parameters)
        model.forward(-3 * x)  # what a buffer held before must not matter
        found = model.forward(x)
        kinds = {it.part for it in identities(model.task_graph) if it.owner == "out"}
        return found, expected, kinds, model.memory


@pytest.fixture(params=["slabs", "stages", "on the way"])
def staged(request, monkeypatch):
    """How Winograd runs: in slabs, or in stages, whose filters are read or transformed on the way."""
    emitters = "znnpy.engine.convolution.winograd."
    passes, stages, filters = (
        import_module(emitters + name) for name in ("passes", "stages", "filters")
    )
    way = request.param
    monkeypatch.setattr(passes, "goes_staged", lambda layout, shape: way != "slabs")
    for module in (stages, filters):
        monkeypatch.setattr(module, "on_the_way", lambda layout, shape: way == "on the way")


@pytest.mark.share(20)
@pytest.mark.parametrize("size", [FLAT, CUBE])
@pytest.mark.parametrize(
    "by",
    [
        {},
        {"two": "winograd", "three": "winograd"},
        {"one": "winograd", "two": "winograd"},
        {"one": "winograd", "three": "winograd"},
    ],
)
@pytest.mark.parametrize("output", [(5, 6, 7), (13, 18, 9)])
def test_equals_the_reference(size, by, output, staged):
    found, expected, kinds, _ = outcome(network(size), output, by)
    assert np.abs(found - expected).max() < 5e-5
    assert Part.SUM not in kinds


@pytest.mark.parametrize("by", [("one",), ("two",), ("one", "two")])
def test_shallow_images_equal_the_reference(by):
    """As the first of the three, and as another one."""
    net = network(CUBE, images=(104, 112))
    found, expected, kinds, _ = outcome(net, (4, 3, 4), dict.fromkeys(by, "winograd"))
    assert np.abs(found - expected).max() < 5e-5
    assert Part.SUM not in kinds


def test_a_norm_and_a_bias_come_after_the_sum():
    net = network(CUBE, norm=Norm("instance"))
    by = {"one": "winograd", "two": "winograd"}
    found, expected, kinds, _ = outcome(net, (9, 10, 11), by)
    assert np.abs(found - expected).max() < 1e-4
    assert Part.SUM not in kinds


def test_bits_do_not_depend_on_threads():
    by = {"one": "winograd", "three": "winograd"}
    found = [outcome(network(CUBE), (13, 18, 22), by, threads)[0] for threads in (0, 3)]
    assert np.array_equal(*found)


def test_other_sums_are_made_as_ever():
    """Spectra are summed before they come back; planar channels, and models that are not lean, add afterwards."""
    found, expected, kinds, _ = outcome(network(CUBE), (9, 10, 11), {"two": "spectral"})
    assert np.abs(found - expected).max() < 5e-5
    found, expected, kinds, most = outcome(network(CUBE), (9, 10, 11), {}, execution=Execution())
    assert np.abs(found - expected).max() < 5e-5
    assert Part.SUM in kinds
    assert outcome(network(CUBE), (9, 10, 11), {})[3] < most
    found, expected, *_ = outcome(network(CUBE, images=(2, 3)), (9, 10, 11), {})
    assert np.abs(found - expected).max() < 5e-5


@pytest.mark.parametrize("algorithm", ["direct", "winograd"])
def test_layers_in_bands_of_groups_are_added_up_behind_them(algorithm):
    nodes = (
        Node("input", "input", 2),
        Node("a", "transfer", 48, function="relu"),
        Node("b", "transfer", 48, function="leaky_relu", slope=0.2),
        Node("out", "transfer", 2),
    )
    edges = (
        Edge("ca", "conv", "input", "a", size=FLAT),
        Edge("one", "conv", "a", "b", size=FLAT, groups=3),
        Edge("two", "conv", "a", "b", size=FLAT, groups=3),
        Edge("last", "conv", "b", "out", size=(1, 1, 1)),
    )
    by = dict.fromkeys(["one", "two"], algorithm)
    found, expected, _, _ = outcome(Network(nodes, edges), (2, 5, 9), by)
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()
