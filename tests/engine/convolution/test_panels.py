"""How direct correlations are cut into tasks: blocks of the source apart, planes panel by panel; the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from against_reference import errors

from znnpy import Model
from znnpy.engine.convolution.direct import correlation
from znnpy.network import load_network
from znnpy.network.types import Network
from znnpy.plan import Grain
from znnpy.plan.cost import lies_planar
from znnpy.plan.partition import evenly
from znnpy.plan.types import PASSES

LAYERS = [
    {"size": 3, "padding": "same"},
    {"size": [2, 3, 1], "stride": [1, 2, 2], "padding": [[0, 1], [1, 1], [0, 0]]},
    {"size": [1, 3, 3], "sparsity": [1, 2, 1], "padding": "same", "border": "reflect"},
    {"kind": "conv_transpose", "size": 2, "stride": 2},
]


def network(keys: dict[str, object]) -> Network:
    """A layer of some blocks on both sides, the last ones not full, between others."""
    step = keys["stride"] if "kind" in keys else 1
    return load_network(
        {
            "nodes": {
                "input": {"kind": "input", "channels": 2},
                "a": {"kind": "transfer", "channels": 53, "function": "relu"},
                "b": {"kind": "transfer", "channels": 70, "function": "leaky_relu"},
                "out": {"kind": "transfer", "channels": 2},
            },
            "edges": {
                "first": {"kind": "conv", "from": "input", "to": "a", "size": 2, "stride": step},
                "layer": {"kind": "conv", "from": "a", "to": "b", **keys},
                "last": {"kind": "conv", "from": "b", "to": "out", "size": [1, 1, 3]},
            },
        }
    )


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("keys", LAYERS)
def test_cuts_change_no_bits(
    keys: dict[str, object], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, found = network(keys), list[list[object]]()
    plan = {edge.name: dict.fromkeys(PASSES, "direct") for edge in net.edges}
    for most, together in ((1 << 30, False), (1, False), (30_000, True), (1, True)):
        monkeypatch.setattr(correlation, "CACHED_FILTERS", most)
        monkeypatch.setattr(correlation, "_by_planes", lambda *_, it=together: it)
        # Those of sums end within others.
        monkeypatch.setattr(correlation, "light_ranges", lambda extent, *_: evenly(extent, 4))
        monkeypatch.setattr(Grain, "ranges", lambda _, extent, *more: evenly(extent, 3))
        with Model(net, (4, 6, 10), 2, threads=threads, plan=plan, loss="square", seed=1) as model:
            x = (
                np.random.default_rng(0)
                .standard_normal((2, 2, *model.input_shape))
                .astype(np.float32)
            )
            t = np.zeros((2, 2, 4, 6, 10), np.float32)
            value, gradients = model.loss_and_gradients(x, t)
            found.append(
                [model.forward(x).tobytes(), value, *map(np.ndarray.tobytes, gradients.values())]
            )
            monkeypatch.undo()
    assert all(one == found[0] for one in found)


@pytest.mark.quick(2)
@pytest.mark.parametrize("keys", LAYERS)
def test_blocks_of_the_source_apart_beside_the_oracle(
    keys: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(correlation, "CACHED_FILTERS", 1)
    found = errors(network(keys), (4, 6, 10), "direct", batch=2, threads=2)
    assert max(found.values()) < 2e-4, found


def test_inputs_of_many_channels_lie_in_blocks() -> None:
    """A block of one channel each made 16,000 tasks of filters of three layers of 256 channels."""
    conv = {"channels": 256, "size": [1, 3, 3], "padding": "same"}
    few = load_network({"input": 2, "layers": [{"conv": conv}]})
    many = load_network({"input": 256, "layers": [{"conv": conv}] * 3})
    assert lies_planar(few, "input")
    assert not lies_planar(many, "input")
    plan = {edge.name: dict.fromkeys(PASSES, "winograd") for edge in many.edges}
    with Model(many, (1, 16, 16), 4, threads=2, plan=plan, loss="square") as model:
        assert model.task_graph.size < 2 * 3000  # an even and an odd update
