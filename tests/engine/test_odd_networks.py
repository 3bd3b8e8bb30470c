"""Odd networks: equal to the reference, in any order of tasks, and where nothing is to be learnt."""

import sys

import numpy as np
import pytest
import random_networks as rn
from against_reference import assert_close, by_name, check_gradients
from model_settings import model_of
from odd_networks import NETWORKS, mixed_plan, network, size, with_data

from znnpy import reference
from znnpy.engine import Model
from znnpy.engine.memory.limits import least_bytes
from znnpy.graph.policies import POLICIES


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", NETWORKS)
def test_odd_networks_equal_the_reference(name):
    net, output, geometry, parameters, x, target, weight = with_data(name, batch=3)
    loss = "softmax" if name.startswith("more") else "square"
    wanted = reference.gradients(net, geometry, parameters, x, target, weight, loss)
    values = reference.forward(net, geometry, parameters, x)
    ways = {"conv": "direct"}, {"conv": "fft"}, *({"plan": mixed_plan(net, n)} for n in (1, 2))
    for way in ways:
        with model_of(net, output, batch=3, threads=2, loss=loss, **way) as model:
            model.set_parameters(parameters)
            for _ in range(2):
                for node, found in by_name(model.forward(x), net).items():
                    assert_close(found, values[node])
                check_gradients(model.loss_and_gradients(x, target, weight=weight), wanted)


def updated(name, plan, updates=3, **options):
    net, output, geometry, parameters, *_ = with_data(name, batch=2)
    with model_of(
        net, output, batch=2, plan=plan, loss="square", clip_norm=0.5, **options
    ) as model:
        model.set_parameters(parameters)
        tickets = [
            model.submit(
                rn.random_inputs(net, geometry, update, 2),
                rn.random_targets(net, geometry, update, 2),
                learning_rate=0.05,
            )
            for update in range(updates)
        ]
        return model.parameters, [model.result(ticket).loss for ticket in tickets[-2:]]


@pytest.fixture
def finest_tasks(monkeypatch):
    """Cut finely, so that small images make many tasks."""
    monkeypatch.setattr(sys.modules["znnpy.plan.partition"], "TARGET_SECONDS", 5e-7)
    monkeypatch.setattr("znnpy.engine.convolution.fft.spectra.TARGET_SECONDS", 5e-7)
    monkeypatch.setattr("znnpy.engine.convolution.direct.weight_gradients.SLAB_BYTES", 1 << 12)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_every_order_that_the_graph_allows_gives_the_same_bits(name, finest_tasks, monkeypatch):
    """Tasks one by one, the most urgent ready one first: what is not declared shows without luck."""
    plan = mixed_plan(NETWORKS[name][0], 3)
    wanted = updated(name, plan, threads=0)
    for order, policy in enumerate(("lifo", "fifo", "random")):
        monkeypatch.setitem(
            POLICIES,
            "random",
            lambda _, cost, seed=order: np.random.default_rng(seed).permutation(len(cost)) * 1.0,
        )
        found = updated(name, plan, threads=0, policy=policy)
        assert found[1] == wanted[1]
        assert all(np.array_equal(found[0][key], wanted[0][key]) for key in wanted[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["thin, cut along y", "outgoing convs on one and on several grids"]
)
def test_odd_networks_have_the_same_bits_on_eight_threads(name, finest_tasks):
    plan = mixed_plan(NETWORKS[name][0], 3)
    wanted = updated(name, plan, threads=0)
    for seed in range(4):
        found = updated(name, plan, threads=8, steal_seed=seed)
        assert found[1] == wanted[1]
        assert all(np.array_equal(found[0][key], wanted[0][key]) for key in wanted[0])


@pytest.mark.quick(5)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", NETWORKS)
def test_no_plan_takes_less_than_the_least(name, training):
    net, output = NETWORKS[name]
    with Model(net, output, threads=1, conv="direct", training=training, loss="square") as model:
        assert least_bytes(net, model.geometry, 1, training, states=1) <= model.memory


def test_a_network_without_parameters_has_a_loss():
    net = network([("x", "input", 1), ("y", "sum", 1)], [("max_filter", "x", "y", size(2, 2, 2))])
    with Model(net, (3, 3, 3), threads=1, loss="square") as model:
        x = np.arange(64, dtype=np.float32).reshape(1, 1, 4, 4, 4)
        loss, gradients = model.loss_and_gradients(x, x[..., 1:, 1:, 1:] + 2)
        assert loss == pytest.approx(4)
        assert gradients == {}
        assert model.step(x, x[..., 1:, 1:, 1:] + 1) == pytest.approx(1)


def test_an_output_without_parameters_counts_beside_one_with_them():
    net = network(
        [("x", "input", 1), ("y", "transfer", 1), ("z", "sum", 1)],
        [("conv", "x", "y", size(2, 2, 2)), ("max_filter", "x", "z", size(2, 2, 2))],
    )
    with Model(net, (3, 3, 3), threads=1, loss="square", conv="direct") as model:
        x = np.arange(64, dtype=np.float32).reshape(1, 1, 4, 4, 4)
        values = model.forward(x)
        loss, gradients = model.loss_and_gradients(x, {**values, "z": values["z"] - 3})
        assert loss == pytest.approx(9)
        assert sorted(gradients) == ["e0", "y"]
