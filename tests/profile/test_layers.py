"""Tasks find the layer and pass that they belong to, whatever the algorithm."""

import pytest

import znnpy
from znnpy.engine.autotune import PARTS
from znnpy.network.types import Edge, Network, Node
from znnpy.profile.layers import PASSES, Layers

NET = {
    "input": 1,
    "layers": [
        {"conv": {"images": 4, "size": 3, "function": "relu"}},
        {"dropout": 0.9},
        {"max_filter": 2},
        {"conv": {"images": 3, "size": 3}},
    ],
}


@pytest.mark.parametrize("conv", ["direct", "fft", "spectral"])
def test_every_task_of_a_net_has_a_place(conv):
    with znnpy.Model(NET, (8, 8, 8), threads=1, conv=conv, clip_norm=1.0) as model:
        layers, graph = Layers(model.network), model.task_graph
        places = {name: layers.place(name) for name in graph.names}
    known = {edge.name for edge in model.network.edges} | {"all layers"}
    for place in places.values():
        assert place.layer in known
        assert place.step in PASSES
    for step in ("forward", "weight gradient", "update"):
        assert {"conv1", "conv2"} <= {
            place.layer for place in places.values() if place.step == step
        }
    assert [name for name, place in places.items() if place.step == "loss"]


def test_passes_of_the_planner_agree():
    network = Network(
        (
            Node("input", "input", 1),
            Node("source", "transfer", 2),
            Node("target", "transfer", 2),
        ),
        (Edge("lift", "conv", "input", "source"), Edge("conv", "conv", "source", "target")),
    )
    layers = Layers(network)
    wanted = {"forward": "forward", "gradient": "backward", "weight": "weight gradient"}
    for name, part in PARTS.items():
        layer, step = layers.place(name)
        if part in wanted and step != "update" and "bias" not in name:
            assert (layer, step) == ("conv", wanted[part]), name
