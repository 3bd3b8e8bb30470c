"""Normalised nodes beside the float64 reference: values, gradients, updates, bits over threads."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from model_settings import model_of

from znnpy import Model, Optimizer, load_network, reference
from znnpy.geometry import fit
from znnpy.network import Network, learned, parameter_shapes

KINDS: dict[str, Any] = {
    "batch": "batch",
    "instance": "instance",
    "group": {"kind": "group", "groups": 4},
    "layer": "layer",
    "channel": "channel",
    "length": {"kind": "length", "epsilon": 0.1},
    "response": "response",
    "bare channel": {"kind": "channel", "affine": False},
    "plain": {"kind": "group", "groups": 10, "affine": False},
}
OUT = (3, 4, 5)
RATE = 0.01


def network(norm: Any, function: str = "relu", images: int = 20, *, bias: bool = False) -> Network:
    """A chain, and a residual sum of edges in a normalised node."""
    normed = {"kind": "transfer", "channels": images, "norm": norm, "bias": bias}
    return load_network(
        {
            "nodes": {
                "in": {"kind": "input", "channels": 2},
                "a": {**normed, "function": function},
                "b": {**normed, "function": "linear"},
                "c": {**normed, "function": function},
                "out": {"kind": "transfer", "channels": 3},
            },
            "edges": {
                "ia": {"kind": "conv", "from": "in", "to": "a", "size": 3},
                "ab": {"kind": "conv", "from": "a", "to": "b", "size": 1},
                "bc": {"kind": "conv", "from": "b", "to": "c", "size": [1, 3, 3]},
                "ac": {"kind": "crop", "from": "a", "to": "c", "offset": [0, 1, 1]},
                "co": {"kind": "conv", "from": "c", "to": "out", "size": 1},
            },
        }
    )


def material(net: Network, batch: int = 2) -> tuple[Any, Any, Any]:
    """Parameters, input and target."""
    rng, shape = np.random.default_rng(0), fit(net, OUT).input_shapes["in"]
    parameters = {}
    for name, size in parameter_shapes(net).items():
        values = rng.standard_normal(size) * 0.3 + (1.0 if name.endswith(".scale") else 0.0)
        values = np.abs(values) + 0.5 if name.endswith(".running_variance") else values
        parameters[name] = values.astype(np.float32)
    x = (rng.standard_normal((batch, 2, *shape)) + 3).astype(np.float32)
    return parameters, x, rng.standard_normal((batch, 3, *OUT)).astype(np.float32)


def assert_near(found: Any, wanted: Any, scale: float = 0.0) -> None:
    assert np.abs(found - wanted).max() <= 1e-5 * max(scale, np.abs(wanted).max())


@pytest.mark.share(30)
@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("kind", "function"),
    [
        *product(KINDS, ["relu", "elu", "silu", "logistic"]),
        *product(["channel", "length", "response"], ["prelu", "softmax", "gelu", "linear"]),
    ],
)
def test_as_the_reference(kind: str, function: str) -> None:
    net = network(KINDS[kind], function, bias=function == "silu")
    parameters, x, target = material(net)
    geometry = fit(net, OUT)
    with Model(net, OUT, batch=2, threads=2, loss="square") as model:
        model.set_parameters(parameters)
        wanted = reference.forward(net, geometry, parameters, {"in": x})["out"]
        assert_near(model.forward(x), wanted)
        loss, gradients = model.loss_and_gradients(x, target)
        for name, array in model.parameters.items():
            np.testing.assert_array_equal(array, parameters[name])
    total, wanted_by = reference.gradients(
        net, geometry, parameters, {"in": x}, {"out": target}, loss="square"
    )
    assert loss == pytest.approx(total, rel=1e-5)
    assert list(gradients) == list(wanted_by) == list(learned(net))
    largest = max(np.abs(gradient).max() for gradient in wanted_by.values())
    for name, gradient in gradients.items():
        assert_near(gradient, wanted_by[name], largest / 10)


def updated(net: Network, x: Any, target: Any, parameters: Any, **how: Any) -> Model:
    """A model after four updates."""
    how = {"optimizer": Optimizer("adam", weight_decay=0.1), "clip_norm": 0.5} | how
    model = model_of(net, OUT, batch=len(x), loss="square", **how)
    model.set_parameters(parameters)
    for _ in range(4):
        model.step(x, target, learning_rate=RATE)
    model.drain()
    return model


@pytest.mark.parametrize("kind", ["batch", "group", "channel", "length", "response"])
def test_updates_as_in_float64(kind: str) -> None:
    net = network(KINDS[kind])
    parameters, x, target = material(net)
    sgd = Optimizer(momentum=0.9, weight_decay=0.1)  # Adam would show the signs of what should be 0
    with (
        updated(net, x, target, parameters, threads=2, optimizer=sgd) as single,
        updated(net, x, target, parameters, precision="float64", optimizer=sgd) as double,
    ):
        for name, array in double.parameters.items():
            np.testing.assert_allclose(single.parameters[name], array, rtol=1e-4, atol=1e-5)
        assert {key.rpartition("/")[0] for key in single.optimizer_state} == set(learned(net))
        assert single.optimizer_state.keys() == double.optimizer_state.keys()
        assert_near(single.forward(x), double.forward(x), 50)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["batch", "instance", "layer", "channel", "length", "response"])
def test_bits_do_not_depend_on_threads(kind: str) -> None:
    net = network(KINDS[kind], "elu")
    parameters, x, target = material(net)
    found = []
    for threads in (1, 3, 8):
        with updated(net, x, target, parameters, threads=threads, steal_seed=threads) as model:
            found.append({**model.parameters, "values": model.forward(x)})
    for other in found[1:]:
        for name, array in other.items():
            np.testing.assert_array_equal(array, found[0][name])


def test_running_statistics_move_once_an_update_and_prediction_uses_them() -> None:
    net = network("batch")
    parameters, x, target = material(net)
    with Model(net, OUT, batch=2, threads=2, loss="square") as model:
        model.set_parameters(parameters)
        before = model.forward(x)
        model.loss_and_gradients(x, target)
        np.testing.assert_array_equal(model.forward(x), before)
        model.step(x, target, learning_rate=0.0)
        moved = model.parameters
    geometry = fit(net, OUT)
    values = reference.forward(net, geometry, parameters, {"in": x}, training=True)
    for name, wanted in reference.moved_statistics(net, geometry, parameters, values).items():
        np.testing.assert_allclose(moved[name], wanted, rtol=1e-5, atol=1e-6)
        assert not np.array_equal(moved[name], parameters[name])


def test_a_normalised_softmax_at_the_output() -> None:
    layer = {"conv": {"channels": 4, "size": 2, "norm": "instance", "function": "softmax"}}
    net = load_network({"input": 1, "layers": [layer]})
    geometry, rng = fit(net, OUT), np.random.default_rng(0)
    x = rng.standard_normal((1, 1, *geometry.input_shapes["input"])).astype(np.float32)
    target = rng.random((1, 4, *OUT)).astype(np.float32)
    target /= target.sum(axis=1, keepdims=True)
    for loss in ("square", "softmax"):
        with Model(net, OUT, threads=1, loss=loss) as model:
            parameters = model.parameters
            wanted = reference.forward(net, geometry, parameters, {"input": x})["output"]
            assert_near(model.forward(x), wanted)
            _, gradients = model.loss_and_gradients(x, target)
        _, wanted_by = reference.gradients(
            net, geometry, parameters, {"input": x}, {"output": target}, loss=loss
        )
        for name, gradient in gradients.items():
            assert_near(gradient, wanted_by[name])


def test_what_is_not_finite_is_named() -> None:
    net = network("batch")
    parameters, _, _ = material(net)
    parameters["b.running_mean"][3] = np.nan
    with Model(net, OUT, threads=1, loss="square") as model:
        model.set_parameters(parameters)
        assert model.non_finite_layer() == "b.running_mean"
