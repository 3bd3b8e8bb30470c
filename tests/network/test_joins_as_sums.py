"""Convolutions of joined images as sums of convolutions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from znnpy import reference
from znnpy.geometry import fit
from znnpy.network import load_network, parameter_shapes
from znnpy.network.joins_as_sums import joins_as_sums
from znnpy.network.types import Edge, Network, Node

UNET: dict[str, Any] = {
    "input": 1, "widths": [3, 4, 5], "convs": 2, "outputs": 2, "padding": "same", "join": "concat",
}  # fmt: skip


def values(network: Network, parameters: dict[str, Any]) -> Any:
    geometry = fit(network, (8, 8, 8))
    x = np.random.default_rng(0).standard_normal((1, 1, *geometry.input_shapes["input"]))
    return reference.forward(network, geometry, parameters, {"input": x})


def drawn(network: Network) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    shapes = parameter_shapes(network)
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


@pytest.mark.parametrize("more", [{}, {"norm": "instance"}, {"order": "pre", "norm": "instance"}])
def test_values_are_the_same(more: Any) -> None:
    network = load_network({"unet": UNET | more})
    found, parameters = joins_as_sums(network), drawn(network)
    split = found.parameters(parameters)
    shapes = {name: np.shape(it) for name, it in split.items()}
    assert shapes == dict(parameter_shapes(found.network))
    one, other = values(network, parameters), values(found.network, split)
    assert all(np.allclose(one[name], other[name], rtol=1e-9, atol=1e-9) for name in other)
    if "order" not in more:
        assert not any(node.kind == "concat" for node in found.network.nodes)
        assert len(found.parts) == 2


def test_what_was_there_first_is_convolved_first() -> None:
    network = load_network({"unet": UNET})
    found = joins_as_sums(network).network
    order = [node.name for node in found.nodes]
    for node in found.nodes:
        sources = [order.index(edge.source) for edge in found.incoming(node.name)]
        assert sources == sorted(sources)
    assert any(len(found.incoming(node.name)) == 2 for node in found.nodes)


def joined(**last: Any) -> Network:
    nodes = (
        Node("input", "input", 1), Node("a", "transfer", 2), Node("b", "transfer", 3),
        Node("j", "concat", 5), Node("out", "transfer", 2),
    )  # fmt: skip
    edges = (
        Edge("ca", "conv", "input", "a"), Edge("cb", "conv", "input", "b"),
        Edge("ia", "identity", "a", "j"), Edge("ib", "identity", "b", "j"),
        Edge("c", "conv", "j", "out", size=(3, 3, 3)),
    )  # fmt: skip
    return Network(nodes, (*edges[:-1], replace(edges[-1], **last)))


def test_what_is_left_as_it_is() -> None:
    assert joins_as_sums(joined()).parts
    for network in (
        joined(weight_standardization=True),
        joined(kind="max_filter", size=(2, 2, 2)),
        Network(joined().nodes[:-1], joined().edges[:-1]),  # an output
    ):
        found = joins_as_sums(network)
        assert found.network == network
        assert not found.parts
