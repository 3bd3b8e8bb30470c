"""depth_to_space: values, gradients and bits, chains and concat nodes, and what is refused."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from model_settings import model_of

from znnpy import load_network
from znnpy.errors import NetworkError
from znnpy.geometry import fit_input
from znnpy.layers.depth_to_space import DEPTH_TO_SPACE
from znnpy.layers.edge_kind import Applied
from znnpy.layers.types import ONCE, Numbers
from znnpy.network.types import Network


def network(factor: tuple[int, int, int], channels: int, *, stacked: bool = False) -> Network:
    each = int(np.prod(factor))
    nodes: dict[str, Any] = {
        "in": {"kind": "input", "channels": 2},
        "deep": {"kind": "transfer", "channels": channels * each, "function": "elu"},
        "wide": {"kind": "sum", "channels": channels},
        "out": {"kind": "transfer", "channels": 3, "function": "tanh"},
    }
    edges: dict[str, Any] = {
        "a": {"kind": "conv", "from": "in", "to": "deep", "size": factor, "stride": factor},
        "b": {"kind": "depth_to_space", "from": "deep", "to": "wide", "factor": factor},
        "c": {"kind": "conv", "from": "wide", "to": "out", "size": [1, 2, 2]},
    }
    if stacked:
        nodes["wide"] = {"kind": "concat", "channels": 2 * channels}
        nodes["other"] = {"kind": "transfer", "channels": channels * each}
        edges["d"] = {**edges["a"], "to": "other"}
        edges["e"] = {**edges["b"], "from": "other"}
    return load_network({"nodes": nodes, "edges": edges})


def test_where_channels_go() -> None:
    factor = (2, 1, 3)
    x = np.random.default_rng(0).normal(size=(1, 12, 2, 3, 2))
    found = DEPTH_TO_SPACE.forward(x, Applied(Numbers(factor=factor), ONCE))
    assert found.shape == (1, 2, 4, 3, 6)
    for c, k, j, i in product(range(2), *map(range, factor)):
        own = x[:, ((c * 2 + k) * 1 + j) * 3 + i]
        np.testing.assert_array_equal(found[:, c, k::2, j::1, i::3], own)


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize(
    ("factor", "channels"), [((1, 2, 2), 5), ((2, 2, 2), 3), ((1, 1, 3), 17), ((2, 1, 1), 16)]
)
def test_gradients_are_those_of_float64(
    factor: tuple[int, int, int], channels: int, stacked: bool
) -> None:
    net, rng = network(factor, channels, stacked=stacked), np.random.default_rng(0)
    geometry = fit_input(net, tuple(4 * n for n in factor))  # type: ignore[arg-type]
    out = geometry.output_shapes["out"]
    x = rng.normal(size=(2, 2, *geometry.input_shapes["in"]))
    y = rng.normal(size=(2, 3, *out))
    keys: dict[str, Any] = {"batch": 2, "loss": "square", "conv": "direct"}
    with (
        model_of(net, out, threads=1, **keys) as own,
        model_of(net, out, threads=1, precision="float64", **keys) as double,
    ):
        loss, gradients = own.loss_and_gradients(x, y)
        wanted_loss, wanted = double.loss_and_gradients(x, y)
    assert loss == pytest.approx(wanted_loss, rel=1e-5)
    for name, array in wanted.items():
        atol = 1e-4 * abs(array).max()
        np.testing.assert_allclose(gradients[name], array, rtol=1e-3, atol=atol, err_msg=name)
    found = []
    for threads in (1, 3, 8):
        with model_of(net, out, threads=threads, **keys) as own:
            for _ in range(2):
                own.step(x, y, learning_rate=0.1)
            found.append([array.tobytes() for array in own.parameters.values()])
    assert found[0] == found[1] == found[2]


def test_other_numbers_of_channels_are_refused() -> None:
    with pytest.raises(NetworkError, match=r"the 6 channels of 'input' are no multiple of 4"):
        load_network({"input": 6, "layers": [{"depth_to_space": [1, 2, 2]}]})
    nodes = {
        "a": {"kind": "input", "channels": 8},
        "b": {"kind": "sum", "channels": 8},
    }
    edges = {"e": {"kind": "depth_to_space", "from": "a", "to": "b", "factor": [1, 2, 2]}}
    with pytest.raises(NetworkError, match="makes 2 channels of 8, but 'b' has 8"):
        load_network({"nodes": nodes, "edges": edges})
