"""Tasks find the layer that they belong to, whatever the algorithm."""

import pytest
from declared_updates import chain, update_of

from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network import load_network
from znnpy.profile.report import CONVOLUTION
from znnpy.profile.summary import ALL, Layers

NET = {
    "input": 1,
    "layers": [
        {"conv": {"channels": 12, "size": 3, "function": "relu"}},
        {"dropout": 0.9},
        {"max_filter": 2},
        {"conv": {"channels": 9, "size": 3}},
    ],
}


@pytest.mark.parametrize("method", ["direct", "fft", "spectral 8x8x8", "winograd"])
def test_every_task_of_a_net_has_a_layer(method):
    network = load_network(NET)
    layers, known = Layers(network), {edge.name for edge in network.edges} | {ALL}
    passes: dict[str, set[Pass]] = {}
    convolutions: dict[str, set[Pass]] = {}
    for what in (task.what for task in update_of(NET, method)):
        passes.setdefault(layers.of(what), set()).add(what.serves)
        if what.kind in CONVOLUTION:
            convolutions.setdefault(layers.of(what), set()).add(what.serves)
    assert set(passes) <= known
    assert passes["conv1"] & passes["conv2"] >= {Pass.FORWARD, Pass.WEIGHT, Pass.UPDATE}
    assert Pass.LOSS in passes["conv2"]
    assert convolutions == {  # nothing before the first one learns
        "conv1": {Pass.FORWARD, Pass.WEIGHT},
        "conv2": {Pass.FORWARD, Pass.BACKWARD, Pass.WEIGHT},
    }


def test_spectra_of_a_node_go_to_the_edge_that_transforms_it():
    layers = Layers(load_network(chain(1, 2, 3)))
    rows = {
        (Pass.FORWARD, Part.IMAGE_SPECTRA): "conv2",
        (Pass.FORWARD, Part.KEPT_TILES): "conv2",
        (Pass.BACKWARD, Part.INVERSE): "conv2",
        (Pass.FORWARD, Part.INVERSE): "conv1",
        (Pass.WEIGHT, Part.OUTPUT_SPECTRA): "conv1",
        (Pass.FORWARD, Part.FUNCTION): "conv1",
    }
    for (step, part), layer in rows.items():
        assert layers.of(Identity("layer1", step, part)) == layer
