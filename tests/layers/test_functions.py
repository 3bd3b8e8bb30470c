"""Each function of nodes: its gradient is that of its values, and the engine computes it as float64 does."""

from __future__ import annotations

import numpy as np
import pytest

from znnpy import Model, load_network
from znnpy.layers.functions import FUNCTIONS
from znnpy.network.types import Network, Node

SMOOTH = [name for name, function in FUNCTIONS.items() if not function.passes_on]
SHAPE = (3, 4, 5)


@pytest.mark.parametrize("name", SMOOTH)
def test_the_gradient_is_that_of_the_values(name: str) -> None:
    node, function = Node("n", "transfer", 3, slope=0.3, amplitude=1.7, gain=0.6), FUNCTIONS[name]
    rng, step = np.random.default_rng(0), 1e-6
    x = 4 * rng.standard_normal((2, 3, 3, 4, 5))
    g = rng.standard_normal(x.shape)
    way = rng.standard_normal(x.shape)
    ends = [np.vdot(g, function.value(x + sign * step * way, node)) for sign in (1, -1)]
    found = x if function.needs_sum else function.value(x, node)
    slope = np.vdot(function.gradient(found, g, node), way)
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / (2 * step), rtol=1e-6)


KEPT = [name for name, function in FUNCTIONS.items() if function.needs_sum]


def test_sums_are_kept_by_who_needs_them_and_while_training_alone() -> None:
    def used(name: str, training: bool) -> int:
        with Model(chain(name), SHAPE, training=training, conv="direct") as model:
            return model.memory

    assert KEPT
    for name in KEPT:
        assert used(name, False) == used("tanh", False)
        assert used(name, True) > used("tanh", True)


def chain(name: str) -> Network:
    convs = [
        {"images": 9, "size": 3, "function": name},
        {"images": 2, "size": [1, 2, 3], "function": name},
    ]
    return load_network({"layers": [{"conv": keys} for keys in convs]})


@pytest.mark.parametrize(
    "name", ["softplus", "soft_sign", "silu", "hard_swish", "gelu", "gelu_tanh"]
)
def test_the_engine_trains_as_float64_does(name: str) -> None:
    found = {}
    for precision in ("float32", "float64"):
        with Model(chain(name), SHAPE, 2, threads=2, seed=3, loss="square", conv="direct",
                   precision=precision) as model:  # fmt: skip
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
