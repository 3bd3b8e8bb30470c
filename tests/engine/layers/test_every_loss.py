"""All losses through the engine: beside float64, on any number of threads, and where nothing counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from loss_cases import cases, named
from model_settings import model_of

from znnpy import Model
from znnpy.network.types import Edge, Network, Node

SHAPE = (5, 6, 20)
CASES = pytest.mark.parametrize(("loss", "function"), cases(), ids=named)


def network(function: Any, images: int = 3) -> Network:
    nodes = (
        Node("in", "input", 1),
        Node("a", "transfer", 18, "tanh"),
        Node("out", "transfer", images, function),
    )
    edges = (
        Edge("e1", "conv", "in", "a", size=(1, 3, 3)),
        Edge("e2", "conv", "a", "out", size=(2, 2, 2)),
    )
    return Network(nodes, edges)


def made(loss: Any, function: Any, **options: Any) -> Model:
    return model_of(network(function), SHAPE, batch=2, loss=loss, conv="direct", seed=3, **options)


def data(model: Model, seed: int = 0) -> Any:
    """Inputs, one-hot targets, and weights by voxel: some 0."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((2, 1, *model.input_shape)).astype(np.float32)
    classes = rng.integers(0, 3, (2, 1, *SHAPE))
    target = np.float32(np.arange(3)[:, None, None, None] == classes)
    weight = rng.random((2, 1, *SHAPE)).astype(np.float32) * (rng.random((2, 1, *SHAPE)) > 0.3)
    return x, target, weight.astype(np.float32)


@pytest.mark.quick(15)
@CASES
@pytest.mark.parametrize("weighted", [True, False])
def test_loss_and_gradients_are_those_of_float64(loss: Any, function: Any, weighted: bool) -> None:
    with (
        made(loss, function, threads=2) as model,
        made(loss, function, precision="float64") as exact,
    ):
        exact.set_parameters(model.parameters)
        batch = data(model) if weighted else data(model)[:2]
        found, gradients = model.loss_and_gradients(*batch)
        wanted, doubles = exact.loss_and_gradients(*batch)
        ticket = model.submit(*batch), exact.submit(*batch)
        errors = model.result(ticket[0]).error, exact.result(ticket[1]).error
    assert found == pytest.approx(wanted, rel=1e-5)
    assert errors[0] == pytest.approx(errors[1], rel=1e-5)
    for name, gradient in doubles.items():
        assert np.abs(gradients[name] - gradient).max() <= 1e-4 * np.abs(gradient).max(), name


@pytest.mark.quick(2)
@CASES
def test_bits_are_the_same_on_any_number_of_threads(loss: Any, function: Any) -> None:
    found = []
    for threads in (1, 3, 8):
        with made(loss, function, threads=threads, steal_seed=threads) as model:
            losses = [model.step(*data(model, seed), learning_rate=0.1) for seed in range(4)]
            found.append((losses, model.parameters))
    for losses, parameters in found[1:]:
        assert losses == found[0][0]
        for name, array in parameters.items():
            assert np.array_equal(array, found[0][1][name]), name


@pytest.mark.quick(6)
@CASES
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_nothing_is_learned_where_nothing_counts(loss: Any, function: Any, precision: Any) -> None:
    with made(loss, function, threads=1, precision=precision) as model:
        x, target, weight = data(model)
        value, gradients = model.loss_and_gradients(x, target * np.nan, weight * 0)
        half = weight * np.array([1, 0]).reshape(2, 1, 1, 1, 1)
        some, changed = model.loss_and_gradients(x, np.where(half, target, np.nan), half)
    assert abs(value) < 1e-12
    for gradient in gradients.values():
        assert not gradient.any()
    assert np.isfinite(some)
    for gradient in changed.values():
        assert np.isfinite(gradient).all()
        assert gradient.any()
