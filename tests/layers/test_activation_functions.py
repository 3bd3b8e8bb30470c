"""Each function of nodes: its gradient is that of its values, and the engine computes it as float64 does."""

from __future__ import annotations

import numpy as np
import pytest

from znnpy import Hardware, Model, load_network
from znnpy.layers.activation_functions import FUNCTIONS, Shaped
from znnpy.network.types import Network

SMOOTH = [name for name, function in FUNCTIONS.items() if not function.passes_on]
SHAPE = (3, 4, 5)
SLOPES = np.array([-0.2, 0.0, 0.7])[:, None, None, None]


@pytest.mark.parametrize("name", SMOOTH)
def test_the_gradient_is_that_of_the_values(name: str) -> None:
    node, function = Shaped(0.3, 1.7, 0.6, SLOPES), FUNCTIONS[name]
    rng, step = np.random.default_rng(0), 1e-6
    x = 4 * rng.standard_normal((2, 3, 3, 4, 5))
    g = rng.standard_normal(x.shape)
    way = rng.standard_normal(x.shape)
    ends = [np.vdot(g, function.value(x + sign * step * way, node)) for sign in (1, -1)]
    found = x if function.needs_sum else function.value(x, node)
    slope = np.vdot(function.gradient(found, g, node), way)
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / (2 * step), rtol=1e-6)


def test_the_gradient_of_learned_slopes_is_that_of_the_values() -> None:
    function, rng = FUNCTIONS["prelu"], np.random.default_rng(0)
    x, g = rng.standard_normal((2, 2, 3, 3, 4, 5))
    assert function.held_gradients is not None
    found = function.held_gradients(x, g, Shaped(slopes=SLOPES))["slopes"]
    for image in range(3):
        step = np.zeros_like(SLOPES)
        step[image] = 1e-6
        ends = [
            np.vdot(g, function.value(x, Shaped(slopes=SLOPES + sign * step))) for sign in (1, -1)
        ]
        np.testing.assert_allclose(found[image], (ends[0] - ends[1]) / 2e-6, rtol=1e-6)


@pytest.mark.parametrize("norm", [None, "instance", "batch"])
def test_slopes_are_learned_as_in_float64(norm: str | None) -> None:
    found = {}
    keys = {"channels": 18, "size": 3, "function": "prelu"} | ({"norm": norm} if norm else {})
    net = load_network({"layers": [{"conv": keys}, {"conv": {"channels": 2, "size": 2}}]})
    for precision in ("float32", "float64"):
        with Model(net, SHAPE, 2, threads=2, seed=3, loss="square", conv="direct",
                   hardware=Hardware(precision=precision)) as model:  # fmt: skip
            rng = np.random.default_rng(1)
            assert (model.parameters["layer1.slopes"] == 0.25).all()
            x = 3 * rng.standard_normal((2, 1, *model.input_shape), np.float32)
            target = rng.random((2, 2, *SHAPE), np.float32)
            for _ in range(5):
                model.step(x, target, learning_rate=5e-4)
            found[precision] = model.parameters["layer1.slopes"]
    assert np.abs(found["float64"] - 0.25).min() > 1e-5
    np.testing.assert_allclose(found["float32"], found["float64"], atol=1e-5)


def test_softmax_between_layers_trains_as_float64_does() -> None:
    layers = [{"channels": 19, "size": 3, "function": "softmax"}, {"channels": 2, "size": 2}]
    net, found = load_network({"layers": [{"conv": keys} for keys in layers]}), {}
    for precision in ("float32", "float64"):
        with Model(net, SHAPE, 2, threads=2, seed=3, loss="square", conv="direct",
                   hardware=Hardware(precision=precision)) as model:  # fmt: skip
            rng = np.random.default_rng(1)
            x = 3 * rng.standard_normal((2, 1, *model.input_shape), np.float32)
            target = rng.random((2, 2, *SHAPE), np.float32)
            found[precision] = model.loss_and_gradients(x, target)[1]
    for name, gradient in found["float64"].items():
        scale = np.abs(gradient).max()
        np.testing.assert_allclose(found["float32"][name], gradient, atol=1e-4 * scale)


KEPT = [name for name, function in FUNCTIONS.items() if function.needs_sum]


def test_sums_are_kept_by_who_needs_them_and_while_training_alone() -> None:
    def used(name: str, training: bool) -> int:
        with Model(chain(name), SHAPE, training=training, conv="direct") as model:
            return model.memory

    assert KEPT
    for name in KEPT:
        if not FUNCTIONS[name].held:
            assert used(name, False) == used("tanh", False)
        assert used(name, True) > used("tanh", True)


def chain(name: str) -> Network:
    convs = [
        {"channels": 9, "size": 3, "function": name},
        {"channels": 2, "size": [1, 2, 3], "function": name},
    ]
    return load_network({"layers": [{"conv": keys} for keys in convs]})


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "name", ["softplus", "soft_sign", "silu", "hard_swish", "gelu", "gelu_tanh"]
)
def test_the_engine_trains_as_float64_does(name: str) -> None:
    found = {}
    for precision in ("float32", "float64"):
        with Model(chain(name), SHAPE, 2, threads=2, seed=3, loss="square", conv="direct",
                   hardware=Hardware(precision=precision)) as model:  # fmt: skip
            rng = np.random.default_rng(1)
            x = 3 * rng.standard_normal((2, 1, *model.input_shape), np.float32)
            target = rng.random((2, 2, *SHAPE), np.float32)
            values = np.asarray(model.forward(x))
            losses = [model.step(x, target, learning_rate=0.05) for _ in range(5)]
            found[precision] = values, losses, dict(model.parameters)
    single, double = found["float32"], found["float64"]
    assert double[1][-1] < double[1][0]
    np.testing.assert_allclose(single[0], double[0], atol=2e-5)
    np.testing.assert_allclose(single[1], double[1], rtol=2e-5)
    for key, array in double[2].items():
        np.testing.assert_allclose(single[2][key], array, atol=1e-4)


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", KEPT)
def test_bits_do_not_depend_on_threads(name: str) -> None:
    found = []
    for threads in (1, 2, 3):
        with Model(chain(name), SHAPE, 2, threads=threads, seed=3, conv="direct") as model:
            rng = np.random.default_rng(1)
            x = 3 * rng.standard_normal((2, 1, *model.input_shape), np.float32)
            target = rng.random((2, 2, *SHAPE), np.float32)
            losses = [model.step(x, target, learning_rate=0.05) for _ in range(5)]
            found.append((losses, [array.tobytes() for array in model.parameters.values()]))
    assert found[0] == found[1] == found[2]
