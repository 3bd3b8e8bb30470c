"""First layers of few channels and five taps along x, whose voxels are made by minimal filtering along x."""

import pytest
from against_reference import check_network, errors

from znnpy import load_network
from znnpy.engine.convolution.direct import correlation, filtered_rows
from znnpy.geometry import fit
from znnpy.plan.algorithms.direct import costs
from znnpy.plan.cost import PLANAR_INPUTS, ConvShape


def net(inputs, taps_y=5, function="relu", **more):
    first = {"channels": 20, "size": [1, taps_y, 5], "function": function, **more}
    # With vectors of four floats more than two inputs are packed.
    few = min(inputs, PLANAR_INPUTS)
    return load_network(
        {"input": few, "layers": [{"conv": first}, {"conv": {"channels": 3, "size": 1}}]}
    )


@pytest.fixture
def asked(monkeypatch):
    """What was asked of passes, and answered."""
    answers, filters = [], correlation._filters_rows
    monkeypatch.setattr(
        correlation, "_filters_rows", lambda it: answers.append(filters(it)) or answers[-1]
    )
    return answers


def seconds(inputs, out, **more):
    """Estimated seconds of the first layer's passes."""
    network = net(inputs, **more)
    shape = ConvShape.of(network.edges[0], network, fit(network, out), 1)
    return costs(shape, None)


@pytest.mark.parametrize(
    ("inputs", "more"),
    [
        (1, {}),
        (3, {"padding": [0, 2, 2]}),
        (3, {"taps_y": 3, "function": "linear"}),
        (4, {"padding": [[0, 0], [4, 1], [0, 3]]}),
        (3, {"taps_y": 8, "padding": [0, 4, 0]}),
    ],
)
def test_values_and_gradients_on_any_threads(asked, inputs, more):
    case = net(inputs, **more), (1, 9, 14)
    bits = [check_network(*case, threads=threads, conv="direct") for threads in (1, 3)]
    assert bits[0] == bits[1]
    assert any(asked)
    estimated = seconds(inputs, (1, 90, 140), **more)
    assert estimated["forward"] < estimated["weight"]


@pytest.mark.parametrize("more", [{"stride": [1, 1, 2]}, {"sparsity": [1, 2, 1]}, {"taps_y": 1}])
def test_other_layers_take_every_product(asked, more):
    check_network(net(3, **more), (1, 6, 9), conv="direct")
    assert not any(asked)
    estimated = seconds(3, (1, 60, 90), **more)
    assert estimated["forward"] == estimated["weight"]


def test_rounding_is_at_most_four_times_that_of_all_products(asked, monkeypatch):
    case = net(3, function="linear"), (1, 20, 30), "direct"
    declared, gradient = [], filtered_rows.slab_gradient
    monkeypatch.setattr(
        filtered_rows, "slab_gradient", lambda *it: declared.append(it) or gradient(*it)
    )
    filtered = errors(*case)
    assert declared
    monkeypatch.setattr(correlation, "_filters_rows", lambda it: False)
    monkeypatch.setattr(filtered_rows, "takes", lambda *layer: False)
    assert any(asked)
    every = errors(*case)
    assert filtered["forward"] <= 4 * every["forward"]
    assert filtered["conv1"] <= 4 * every["conv1"]
