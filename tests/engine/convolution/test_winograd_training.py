"""Training by Winograd's minimal filtering against the float64 reference, in whole networks."""

import numpy as np
import pytest
from against_reference import check_network, errors
from chains import K3, ONE, PASSES, winograd_chain, winograd_plan
from znnpy_kernels.simd.lanes import LANES

from znnpy import Model
from znnpy.engine.tasks.task_identity import Part, identities
from znnpy.layers.types import BARE
from znnpy.network.types import Edge, Network, Node
from znnpy.plan.algorithms import winograd_gradients
from znnpy.plan.types import MARCHES


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("images", "sparsity", "output", "batch"),
    [
        ((3, 5, 2), ONE, (1, 1, 1), 1),
        ((17, 16, 9), ONE, (9, 8, 7), 2),
        ((10, 12, 3), (2, 2, 2), (11, 6, 13), 1),
        ((33, 20, 40), (1, 2, 3), (5, 18, 9), 1),
        ((4, 16, 16), (4, 4, 4), (2, 13, 21), 2),
        ((70, 100, 33), ONE, (5, 3, 6), 1),
    ],
)
def test_layers(images, sparsity, output, batch):
    net = winograd_chain(images, sparsity)
    plan = winograd_plan(net)
    # A sum so near 0 that rounding decides where a relu bends parts all gradients before it: another draw has none.
    draws = (errors(net, output, plan, batch, seed) for seed in range(3))
    assert any(max(found.values()) < 3e-5 for found in draws)


@pytest.mark.parametrize(
    ("images", "padding", "output", "batch"),
    [
        ((5, 12, 16), ((1, 1), (0, 2), (2, 1)), (9, 34, 51), 2),
        ((16, 7, 9), BARE, (32, 30, 33), 1),
    ],
)
def test_one_task_makes_both_gradients_of_large_layers(images, padding, output, batch):
    net = winograd_chain(images, functions=("relu",) * 3, padding=padding)
    apart, plan = (winograd_plan(net, march=it) for it in MARCHES)
    made = [owners(net, output, batch, it) for it in (apart, plan)]
    assert made == [set(), {edge.name for edge in net.edges[1:]}]
    draws = (errors(net, output, plan, batch, seed, threads=2) for seed in range(3))
    assert any(max(found.values()) < 3e-5 for found in draws)
    found = [check_network(net, output, batch=batch, threads=it, plan=plan) for it in (1, 3)]
    assert tuple(found[0]) == tuple(found[1])


def owners(net, output, batch, plan):
    """Layers whose gradients are made by the same tasks."""
    with Model(net, output, batch=batch, threads=1, plan=plan) as model:
        return {it.owner for it in identities(model.task_graph) if it.part is Part.BOTH}


@pytest.mark.parametrize("size", [K3, (1, 3, 3), (3, 1, 1)])
def test_marches_have_the_same_values_and_gradients_go_apart_where_one_pass_does(size):
    net, output = winograd_chain((16, 7, 9), size=size), (32, 30, 33)
    both, x = winograd_plan(net, march="joined"), normal((1, 1, 40, 40, 40))
    found = []
    for march in MARCHES:
        plan = winograd_plan(net, march=march)
        with Model(net, output, threads=1, seed=3, plan=plan) as model:
            z, y, x_ = model.input_shape
            found.append(model.forward(x[..., :z, :y, :x_]))
    assert np.array_equal(*found)
    plan = {name: {**it, "gradient_march": "apart"} for name, it in both.items() if name != "c0"}
    plan["c0"] = both["c0"]
    assert owners(net, output, 1, both)
    assert not owners(net, output, 1, plan)


def normal(shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("step", PASSES)
def test_each_pass_alone(step):
    net = winograd_chain((17, 12, 5), (2, 1, 1))
    assert max(errors(net, (7, 9, 6), winograd_plan(net, (step,)), 2).values()) < 3e-5


def test_functions_that_no_convolution_applies():
    net = winograd_chain((5, 6, 3), functions=("tanh", "elu", "logistic"))
    assert max(errors(net, (6, 7, 8), winograd_plan(net)).values()) < 3e-5


def test_images_that_others_read_too():
    nodes = [Node("input", "input", 1)]
    nodes += [Node(name, "transfer", 7, function="relu") for name in ("a", "b", "out")]
    edges = (
        Edge("c0", "conv", "input", "a", size=K3),
        Edge("c1", "conv", "a", "b", size=K3),
        Edge("p", "max_filter", "b", "m", size=(2, 2, 2)),
        Edge("c2", "conv", "m", "out", size=K3),
        Edge("c3", "conv", "m", "out", size=K3),
    )
    net = Network((*nodes[:3], Node("m", "sum", 7), nodes[3]), edges)
    assert max(errors(net, (6, 5, 9), winograd_plan(net), 2).values()) < 3e-5


def scratch(images):
    """Floats of each worker's scratch for layers of so many images, and tasks of a weight gradient."""
    net = winograd_chain((images, images, 3))
    # With so many workers each leaf is a task of its own.
    with Model(net, (4, 4, 4), threads=16, plan=winograd_plan(net, ("weight",))) as model:
        what = [it for it in identities(model.task_graph) if it.part is Part.WINOGRAD]
        return model._engine._build.workspace, len(what)


def test_sums_of_many_images_are_made_in_panels():
    """As many as a cache holds: tasks get more, and scratch does not grow as pairs of channels do, 16 times."""
    blocks = min(LANES, 8)  # with wider vectors the same images
    (few, once), (many, often) = scratch(4 * blocks), scratch(16 * blocks)
    assert often > 2 * once
    assert many < 8 * few


def gradients(threads):
    """Weight gradients of wide layers on small images, and the tasks of their sums."""
    net = winograd_chain((130, 70, 5))
    plan = winograd_plan(net, ("weight",))
    with Model(net, (3, 4, 5), batch=3, seed=1, threads=threads, loss="square", plan=plan) as model:
        rng = np.random.default_rng(5)
        x = rng.standard_normal((3, 1, *model.input_shape)).astype(np.float32)
        target = rng.random((3, 5, 3, 4, 5)).astype(np.float32)
        what = [it for it in identities(model.task_graph) if it.part is Part.WINOGRAD]
        return model.loss_and_gradients(x, target)[1], len(what)


def test_panels_of_any_number_of_workers_have_the_same_bits():
    (wanted, few), (found, many) = gradients(1), gradients(16)
    assert many > few
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values)


@pytest.fixture
def few_sums(monkeypatch):
    """Ranges of a tile or two, which are added up in three gradients."""
    monkeypatch.setattr(winograd_gradients, "JOINT_POINTS", 2 * 216)
    monkeypatch.setattr(winograd_gradients, "JOINT_BYTES", 0)
    monkeypatch.setattr(winograd_gradients, "FEWEST_JOINT", 3)


@pytest.mark.usefixtures("few_sums")
def test_ranges_are_added_up_in_few_gradients():
    net = winograd_chain((17, 16, 9))
    assert max(errors(net, (9, 8, 7), winograd_plan(net, ("weight",)), 2).values()) < 3e-5


@pytest.mark.usefixtures("few_sums")
def test_ranges_that_are_added_up_have_the_same_bits_for_any_number_of_workers():
    (wanted, few), (found, many) = gradients(1), gradients(16)
    assert many > few
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values)


@pytest.mark.slow
@pytest.mark.parametrize("images", [12, 32])
def test_rounding_is_at_most_four_times_that_of_direct(images):
    net = winograd_chain((images, images, images), functions=("linear",) * 3)
    winograd, direct = (
        errors(net, (12, 12, 12), by) for by in (winograd_plan(net), winograd_plan(net, ()))
    )
    for name in ("forward", "c0", "c1", "c2"):
        assert winograd[name] <= 4 * direct[name], (name, winograd[name], direct[name])


def trained(threads):
    net, rng = winograd_chain((12, 18, 5), (2, 2, 2)), np.random.default_rng(5)
    output = (11, 22, 13)
    with Model(net, output, batch=2, seed=1, threads=threads, plan=winograd_plan(net)) as model:
        for _ in range(4):
            x = rng.standard_normal((2, 1, *model.input_shape)).astype(np.float32)
            target = rng.random((2, 5, *output)).astype(np.float32)
            model.step(x, target, learning_rate=0.1)
        return model.parameters


@pytest.mark.slow
def test_same_bits_for_any_number_of_threads():
    wanted = trained(0)
    for threads in (1, 2, 8):
        for name, values in trained(threads).items():
            np.testing.assert_array_equal(values, wanted[name])
