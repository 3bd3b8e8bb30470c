"""Graphs by estimate: with `auto` every layer runs by what is estimated to take least."""

import pytest

from znnpy.engine.estimate import estimated_graph
from znnpy.network import load_network


@pytest.mark.parametrize(("size", "least"), [(3, "direct"), (7, "spectral")])
def test_auto_takes_the_method_of_least_estimated_cost(size, least):
    network = load_network({"layers": [{"conv": {"channels": 20, "size": size}}]})
    auto, told = (estimated_graph(network, (24, 24, 24), conv) for conv in ("auto", least))
    assert set(auto.kinds) == set(told.kinds)
