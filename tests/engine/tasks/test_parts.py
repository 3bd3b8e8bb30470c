"""Tasks go on with the parts that others have written: each waits for its own, in any order, with the same bits."""

import ctypes

import numpy as np
import pytest
import random_networks as rn
from odd_networks import network, size

from znnpy import Execution, Model
from znnpy.engine.convolution.winograd import passes as winograd_passes
from znnpy.geometry import fit
from znnpy.graph import POLICIES
from znnpy.plan import Grain
from znnpy.plan.partition import FEWEST
from znnpy.reference import evaluate

OUTPUT = (10, 24, 10)
SAME = size(3, 3, 3, padding="same")


def residual(function="silu", pool="max_pool"):
    """Two levels of padded layers with sums of what skips them, and a pointwise one at the end."""
    net = network(
        [("x", "input", 1), ("a", "transfer", 17, {"function": function}),
         ("b", "transfer", 17, {"function": function}), ("p", "sum", 17),
         ("c", "transfer", 17, {"function": "elu"}), ("d", "transfer", 17, {"function": function}),
         ("e", "transfer", 18, {"function": "relu"}), ("y", "transfer", 2)],
        [("conv", "x", "a", SAME), ("conv", "a", "b", SAME), ("identity", "a", "b"),
         (pool, "b", "p", size(2, 2, 2, stride=(2, 2, 2))), ("conv", "p", "c", SAME),
         ("upsample", "c", "d", {"factor": (2, 2, 2), "mode": "linear"}), ("identity", "b", "d"),
         ("conv", "d", "e", SAME), ("conv", "e", "y", size(1, 1, 1))],
    )  # fmt: skip
    passes = ("forward", "gradient", "weight")
    taken = {"e1": "winograd", "e4": "winograd", "e7": "winograd"}
    convs = (edge.name for edge in net.edges if edge.kind == "conv")
    return net, {name: dict.fromkeys(passes, taken.get(name, "direct")) for name in convs}


@pytest.fixture(params=[False, True], ids=["marches", "stages"])
def short(monkeypatch, request):
    """Tasks as short as can be, as many as workers ask for; passes that march, or go in stages."""
    grain = classmethod(lambda cls, work, workers: cls(1e-7, 1e-7, max(FEWEST, workers)))
    monkeypatch.setattr(Grain, "of", grain)
    monkeypatch.setattr(winograd_passes, "spreads", lambda *given, **named: request.param)


def given(net):
    geometry = fit(net, OUTPUT)
    return rn.random_parameters(net, 1), rn.random_inputs(net, geometry, 0, 1)


def predicted(net, plan, workers, policy="critical-path", threads=0):
    parameters, x = given(net)
    execution = Execution(cut_for=workers, policy=policy)
    with Model(net, OUTPUT, threads=threads, plan=plan, training=False, execution=execution) as it:
        it.set_parameters(parameters)
        return np.asarray(it.forward(x)), it.task_graph


@pytest.mark.share(2)
@pytest.mark.quick(1)
@pytest.mark.parametrize("pool", ["max_pool", "avg_pool"])
def test_the_same_bits_in_any_order(pool, short):
    """What a part needs is waited for: else orders that no worker would take show what lay there before."""
    net, plan = residual(pool=pool)
    expected, _ = predicted(net, plan, 1)
    parameters, x = given(net)
    exact = evaluate.forward(net, fit(net, OUTPUT), parameters, x)["y"]
    np.testing.assert_allclose(expected, exact, rtol=1e-3, atol=1e-3 * np.abs(exact).max())
    for policy in POLICIES:
        assert np.array_equal(predicted(net, plan, 64, policy)[0], expected), policy
    for workers in (3, 16):
        assert np.array_equal(predicted(net, plan, workers, threads=2)[0], expected)


@pytest.mark.parametrize(
    ("output", "sparsity"),
    # Groups of tiles along z of which all but the last, smaller one are cut; lattices along y with unlike many tiles.
    [((50, 16, 16), (2, 1, 1)), ((5, 9, 18), (1, 2, 1))],
)
def test_rows_between_those_of_others_are_no_parts(output, sparsity, monkeypatch):
    net = network(
        [("x", "input", 17), ("y", "transfer", 17, {"function": "silu"})],
        [("conv", "x", "y", size(3, 3, 3, sparsity=sparsity))],
    )
    plan = {"e0": dict.fromkeys(("forward", "gradient", "weight"), "winograd")}
    parameters = rn.random_parameters(net, 1)
    x = rn.random_inputs(net, fit(net, output), 0, 1)
    monkeypatch.setattr(winograd_passes, "spreads", lambda *given, **named: True)
    exact = evaluate.forward(net, fit(net, output), parameters, x)["y"]
    # How long tasks are, and so which of them are cut, depends on the CPU.
    for least in (1.0, *np.geomspace(2e-6, 1e-4, 8).tolist()):
        grain = classmethod(lambda cls, work, workers, least=least: cls(least, least, 24))
        monkeypatch.setattr(Grain, "of", grain)
        with Model(net, output, threads=0, plan=plan, training=False) as it:
            it.set_parameters(parameters)
            found = np.asarray(it.forward(x))
        np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-3, err_msg=str(least))


def depth_first(graph, rng):
    """All tasks, each as early as what it waits for lets it be, one way through the graph after the other."""
    before, after = graph.edges(carried=False)
    waits = [before[after == task] for task in range(graph.size)]
    ran, order = np.zeros(graph.size, bool), []
    for end in rng.permutation(np.setdiff1d(np.arange(graph.size), before)):
        stack = [end]
        while stack:
            left = [one for one in rng.permutation(waits[stack[-1]]) if not ran[one]]
            if left:
                stack.append(left[0])
                continue
            task = stack.pop()
            if not ran[task]:
                ran[task] = True
                order.append(int(task))
    return order


@pytest.mark.quick(2)
@pytest.mark.lanes
@pytest.mark.parametrize("pool", ["max_pool", "avg_pool"])
def test_who_needs_a_part_waits_for_it(pool, short):
    """Also where all that it does not wait for has not run: else values of another input stand there."""
    net, plan = residual(pool=pool)
    parameters, x = given(net)
    other = {name: -array[..., ::-1] for name, array in x.items()}
    execution = Execution(cut_for=64)
    with Model(net, OUTPUT, threads=0, plan=plan, training=False, execution=execution) as model:
        model.set_parameters(parameters)
        build, memory = model._engine._build, model._engine._arena._memory

        def place(tensor):
            start = tensor.buffer.address - memory.ctypes.data
            return slice(start, start + 4 * tensor.buffer.floats)

        found, staged = place(build.maps.activations["y"]), place(build.staged.inputs["x"])
        model.forward(x)
        graph, expected, given_ = model.task_graph, memory[found].copy(), memory[staged].copy()
        for seed in range(4):
            model.forward(other)
            memory[staged] = given_
            for task in depth_first(graph, np.random.default_rng(seed)):
                # Where callers' arrays lay is nobody's memory by now.
                if not graph.tasks[task].label.endswith("output"):
                    words = np.ascontiguousarray(graph.arguments(task))
                    kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
                    kernel(int(graph.addresses[task]))(words.ctypes.data, 0)
            assert np.array_equal(memory[found], expected)


@pytest.mark.share(2)
@pytest.mark.quick(1)
@pytest.mark.parametrize("function", ["silu", "relu"])
def test_gradients_in_any_order(function, short):
    net, plan = residual(function)
    parameters, x = given(net)
    target = rn.random_targets(net, fit(net, OUTPUT), 0, 1)

    def gradients(workers, policy):
        execution = Execution(cut_for=workers, policy=policy)
        with Model(net, OUTPUT, threads=0, plan=plan, loss="square", execution=execution) as it:
            it.set_parameters(parameters)
            loss, found = it.loss_and_gradients(x, target)
            return [np.float64(loss), *found.values()]

    expected = gradients(1, "critical-path")
    for policy in POLICIES:
        for one, other in zip(gradients(64, policy), expected, strict=True):
            assert np.array_equal(one, other), policy


def test_a_function_waits_for_one_task(short):
    """Of many workers: the convolution's that wrote its part, and nobody else's."""
    net, plan = residual()
    graph = predicted(net, plan, 64)[1]
    before, after = graph.edges(carried=False)
    labels = np.array([task.label for task in graph.tasks])
    for name, waits_for in (("a", {"e0"}), ("b", {"b sum"}), ("c", {"e4", "e4 inverse"}),
                            ("d", {"d sum"}), ("p frame", {"e3"})):  # fmt: skip
        tasks = np.flatnonzero(labels == name)
        assert len(tasks) > 4, name
        for task in tasks.tolist():
            own = before[after == task]
            assert len(own) == 1, name
            assert labels[own[0]] in waits_for, name
