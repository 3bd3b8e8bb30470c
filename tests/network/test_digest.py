"""What a network computes has a name; what it starts with, and what is as usual, does not count."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from znnpy.layers.types import Norm
from znnpy.network import load_network, network_digest
from znnpy.network.types import Edge, Network

LAYERS: dict[str, Any] = {
    "layers": [
        {"conv": {"channels": 4, "size": 3, "function": "elu", "norm": "batch"}},
        {"max_filter": 2},
        {"conv": {"channels": 1, "size": 3}},
    ]
}


def changed(**more: Any) -> Network:
    first, *rest = LAYERS["layers"]
    return load_network({"layers": [{"conv": first["conv"] | more}, *rest]})


def test_every_number_of_a_layer_changes_the_name() -> None:
    networks = [
        changed(),
        changed(function="relu"),
        changed(function="leaky_relu"),
        changed(norm=None),
        changed(norm="instance"),
        changed(norm={"kind": "batch", "epsilon": 1e-3}),
        changed(channels=5),
        changed(size=2),
        changed(padding="same"),
        changed(sparsity=2),
    ]
    reversed_ = Network(networks[0].nodes, networks[0].edges[::-1])
    assert len({network_digest(network) for network in [*networks, reversed_]}) == 11


def test_start_values_do_not_count() -> None:
    assert network_digest(changed(init="xavier")) == network_digest(changed())


def test_a_number_that_is_new_counts_where_it_is_not_as_usual() -> None:
    """So runs of networks without it are read by the version that brings it."""

    @dataclass(frozen=True)
    class Later(Edge):
        dropped: float = 0.0

    @dataclass(frozen=True)
    class LaterNorm(Norm):
        centred: bool = True

    def later(edge: Edge, **more: Any) -> Edge:
        return Later(**(vars(edge) | more))

    now = changed()
    nodes = (replace(n, norm=n.norm and LaterNorm(**vars(n.norm))) for n in now.nodes)
    same = Network(tuple(nodes), tuple(map(later, now.edges)))
    other = Network(now.nodes, tuple(later(edge, dropped=0.5) for edge in now.edges))
    assert network_digest(same) == network_digest(now) != network_digest(other)
