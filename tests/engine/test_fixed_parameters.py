"""Edges and nodes with `learn: false`: no gradient, no update, whatever computes the passes around them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from znnpy import Hardware, Model, Optimizer, Training, load_network
from znnpy.config import config_from
from znnpy.errors import ConfigError
from znnpy.infer.config_model import frozen_of
from znnpy.layers.types import Numbers
from znnpy.network import network_to_section
from znnpy.network.parameters import learned, parameter_shapes, trained_nodes

NORM = {"kind": "group", "groups": 2}
LAYERS: list[dict[str, Any]] = [
    {"conv": {"channels": 12, "size": 2, "stride": 2, "function": "relu", "learn": False}},
    {"conv": {"channels": 12, "size": 3, "function": "prelu", "norm": NORM, "bias": True}},
    {"conv": {"channels": 20, "size": 3, "function": "prelu", "norm": "instance", "bias": True, "learn": False}},
    {"conv_transpose": {"channels": 12, "size": 2, "stride": 2, "function": "tanh", "learn": False}},
    {"conv": {"channels": 2, "size": 1}},
]  # fmt: skip
NET = {"input": 3, "layers": LAYERS}
FIXED = {
    *("conv1", "layer1", "conv3", "layer3", "layer3.scale", "layer3.shift", "layer3.slopes"),
    *("conv_transpose1", "layer4"),
}


def model(conv: Any = "direct", precision: Any = "float32", threads: int = 1, **keys: Any) -> Model:
    return Model(
        NET, (4, 4, 4), batch=keys.pop("batch", 2), threads=threads, conv=conv, loss="square",
        optimizer=Optimizer("sgd", momentum=0.9, weight_decay=0.1), training=Training(**keys),
        hardware=Hardware(precision=precision),
    )  # fmt: skip


def batch(count: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.normal(size=(count, 3, 12, 12, 12)), rng.normal(size=(count, 2, 4, 4, 4))


def test_what_learns() -> None:
    net = load_network(NET)
    assert set(parameter_shapes(net)) - set(learned(net)) == FIXED
    # Nothing before the second layer learns, so no gradient goes there.
    assert "layer1" not in trained_nodes(net)
    assert load_network(network_to_section(net).model_dump(by_alias=True, exclude_none=True)) == net


@pytest.mark.parametrize("conv", ["direct", "fft", "spectral", "auto"])
def test_gradients_are_those_of_float64(conv: str) -> None:
    x, y = batch()
    with model(conv) as own, model(conv, "float64") as other:
        loss, gradients = own.loss_and_gradients(x, y)
        wanted_loss, wanted = other.loss_and_gradients(x, y)
    assert loss == pytest.approx(wanted_loss, rel=1e-5)
    assert set(gradients) == set(wanted) == set(parameter_shapes(load_network(NET))) - FIXED
    for name, array in wanted.items():
        np.testing.assert_allclose(gradients[name], array, rtol=1e-3, atol=1e-4 * abs(array).max())


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_updates_move_the_rest_as_freezing_does(precision: str) -> None:
    plain = [
        {kind: {key: it for key, it in keys.items() if key != "learn"}}
        for layer in LAYERS
        for kind, keys in layer.items()
    ]
    x, y = batch()
    with (
        model("direct", precision, clip_norm=0.5) as own,
        Model(
            {"input": 3, "layers": plain}, (4, 4, 4), batch=2, threads=1, conv="direct", loss="square",
            optimizer=Optimizer("sgd", momentum=0.9, weight_decay=0.1), hardware=Hardware(precision=precision),  # type: ignore[arg-type]
            training=Training(clip_norm=0.5, freeze=sorted(FIXED)),
        ) as other,
    ):  # fmt: skip
        before = own.parameters
        for one in (own, other):
            for _ in range(2):
                one.step(x, y, learning_rate=0.1)
        after, wanted = own.parameters, other.parameters
        assert {name.partition("/")[0] for name in own.optimizer_state} == set(before) - FIXED
    for name, array in after.items():
        assert (array.tobytes() == before[name].tobytes()) == (name in FIXED), name
        np.testing.assert_allclose(array, wanted[name], rtol=1e-5, atol=1e-6)


def test_the_same_bits_for_any_number_of_workers_and_microbatches_in_flight() -> None:
    x, y = batch(4)
    found = []
    for threads in (1, 2, 5):
        with model("auto", threads=threads, batch=4, microbatch=1) as own:
            for _ in range(2):
                own.step(x, y, learning_rate=0.1)
            found.append({name: array.tobytes() for name, array in own.parameters.items()})
    assert found[0] == found[1] == found[2]


def test_freezing_names_only_what_learns() -> None:
    with pytest.raises(ConfigError, match=r"'conv1' names no parameter that is learned"):
        model(freeze=["conv1"])


def test_a_run_of_which_nothing_learns_is_refused() -> None:
    layer = {"conv": {"channels": 1, "size": 1, "learn": False}}
    data = {"train": [{"image": "a.h5", "labels": "b.h5"}], "target": "mask"}
    training = {"output_shape": 2, "iterations": 1}
    config = config_from({"network": {"layers": [layer]}, "data": data, "training": training})
    with pytest.raises(ConfigError, match="nothing would be learned"):
        frozen_of(config, load_network({"layers": [layer]}))


def test_only_filters_and_transfer_nodes_say_it() -> None:
    with pytest.raises(ConfigError, match="learn"):
        load_network({"layers": [{"max_pool": {"size": 2, "learn": False}}]})
    nodes = {"a": {"kind": "input", "channels": 1}, "b": {"kind": "sum", "channels": 1, "learn": False}}  # fmt: skip
    edges = {"e": {"kind": "identity", "from": "a", "to": "b"}}
    with pytest.raises(ConfigError, match="only a transfer node has this"):
        load_network({"nodes": nodes, "edges": edges})
    assert Numbers().learn
