"""What a layout's graphs do beside running: memory of the compiler that goes back."""

import threading

import numpy as np
import pytest
from random_networks import random_network
from small_models import data, small
from znnpy_kernels.machine.abi import Kernel

from znnpy import Hardware, Model, Training
from znnpy.engine import execution, float32_engine
from znnpy.engine.memory import arena
from znnpy.engine.step_tasks import declare
from znnpy.errors import ZnnpyError
from znnpy.network import initial_parameters


@pytest.fixture
def given(monkeypatch):
    """How often pages went back, in a process that has linked all kernels and handed back what that took."""
    found = []
    monkeypatch.setattr(execution, "give_back_libraries", lambda: found.append(None))
    small().close()
    monkeypatch.setattr(execution, "_linked", False)
    return found


def predict():
    with small(training=False) as model:
        model.forward([[[[[0.0] * 7] * 7] * 7]])


@pytest.mark.parametrize(("threads", "processes"), [(1, 1), (2, 2), (64, 3)])
def test_no_more_processes_compile_than_there_are_cores(threads, processes, monkeypatch):
    """Each takes the memory of a compiler."""
    found = []
    monkeypatch.setattr(execution, "available_cores", lambda: 3)
    monkeypatch.setattr(execution, "compile_all", lambda kernels, count, tell: found.append(count))
    small(threads=threads).close()
    assert found == [processes]


def test_pages_do_not_go_back_for_each_model(given):
    """All that is mapped would be looked through, which takes longer than a small one."""
    predict()
    assert not given


@pytest.mark.parametrize("training", [False, True])
def test_pages_go_back_once_kernels_are_linked(given, monkeypatch, training):
    """Those that a model that trains has linked, too, but only when one predicts."""
    with monkeypatch.context() as patched:
        patched.setattr(Kernel, "loaded", property(lambda kernel: False))
        small().close() if training else predict()
    assert len(given) == 2 * (not training)
    predict()
    assert len(given) == 2
    predict()
    assert len(given) == 2


def test_what_one_thread_links_is_not_forgotten_by_another(given, monkeypatch):
    """Another thread's model hands back while this one links, and links while this one hands back."""
    compile_all = execution.compile_all

    def linking(*wanted):
        compile_all(*wanted)
        execution._linked = False

    with monkeypatch.context() as patched:
        patched.setattr(Kernel, "loaded", property(lambda kernel: False))
        patched.setattr(execution, "compile_all", linking)
        small().close()
    assert execution._linked
    monkeypatch.setattr(
        execution, "give_back_libraries", lambda: setattr(execution, "_linked", True)
    )
    predict()
    assert execution._linked


@pytest.fixture
def declared(monkeypatch):
    """Names of the graphs that were declared once there was memory."""
    found, own = [], execution.declare
    monkeypatch.setattr(
        execution, "declare", lambda name, *given: found.append(name) or own(name, *given)
    )
    return found


def test_graphs_have_the_tasks_that_memory_was_planned_with(declared):
    """All but those that are made after an update's, by when these are gone."""
    with small(loss="square") as model:
        x, target = data(model)
        model.loss_and_gradients(x, target)
        model.step(x, target)
        assert not declared
        model.forward(x)
        assert declared == ["forward"]


def test_tasks_of_more_buffers_than_addresses_tell_apart_are_declared_again(declared, monkeypatch):
    monkeypatch.setattr(arena, "LAST", arena.FIRST + 3 * arena.APART)
    with small(loss="square") as model:
        model.step(*data(model))
    assert "update" in declared


def test_graphs_are_declared_for_who_asks_for_them(declared):
    """Of several microbatches all but updates and derived filters."""
    layers = [{"conv": {"channels": 1, "size": 1}}]
    training = Training(microbatch=1)
    with Model({"layers": layers}, 2, 2, loss="square", training=training) as model:
        declared.clear()
        x = np.zeros((2, 1, *model.input_shape), np.float32)
        model.forward(x)
        assert declared == ["forward"]
        model.loss_and_gradients(x, x)
        assert declared == ["forward", "gradients"]


@pytest.mark.parametrize("seed", range(6))
def test_planned_tasks_are_those_that_are_declared_in_memory(seed):
    """Their words, once addresses are moved to where buffers lie by then."""
    net, shape = random_network(seed)
    with Model(
        net, shape, threads=2, conv=("direct", "spectral")[seed % 2], loss="square"
    ) as model:
        graphs = model._engine._graphs
        build, settings, planned = graphs._build, graphs._settings, graphs._planned
        for name in planned.steps:
            ours, wanted = (
                np.array([word for task in tasks for block in blocks(task) for word in block], int)
                for (tasks,) in (planned.steps[name], declare(name, build, settings))
            )
            assert not len(ours) or np.any(ours != wanted)
            arena.moved(ours, graphs._places)
            np.testing.assert_array_equal(ours, wanted)


DIFFERENT = [
    {"conv": {"channels": 5, "size": 3, "function": "relu", "norm": "batch"}},
    {"dropout": {"keep": 0.5}},
    {"conv": {"channels": 3, "size": 3}},
]


@pytest.mark.parametrize(("layers", "alike"), [(DIFFERENT, False), (DIFFERENT[2:], True)])
def test_predictions_are_planned_as_they_run_where_updates_differ(layers, alike):
    with Model({"layers": layers}, 4, 2, threads=2, loss="square", conv="direct") as model:
        graphs = model._engine._graphs
        (planned,) = graphs._planned.steps["forward"]
        (wanted,) = declare("forward", graphs._build, graphs._settings)
        assert [task.what for task in planned] == [task.what for task in wanted]
        update = {id(task) for task in graphs._planned.steps["gradients"][0]}
        assert any(id(task) in update for task in planned) == alike


def blocks(task):
    return task.arguments, *(words for _, words in task.more)


@pytest.mark.parametrize("threads", [1, 3])
def test_many_parameters_are_packed_by_several_threads(threads, monkeypatch):
    packed, real = [], float32_engine.pack_parameter

    def pack(parameter, array, target):
        packed.append(threading.current_thread())
        if not np.isfinite(array).all():
            raise ValueError(parameter.name)
        real(parameter, array, target)

    monkeypatch.setattr(float32_engine, "MANY", 1)
    monkeypatch.setattr(float32_engine, "pack_parameter", pack)
    with small(threads=threads) as model:
        given = initial_parameters(model.network, 3)
        *_, last = given
        model.set_parameters(given)
        found = model.parameters
        assert (threading.current_thread() in packed) == (threads == 1)
        for name, array in given.items():
            np.testing.assert_array_equal(found[name], array)
        with pytest.raises(ValueError, match=last):
            model.set_parameters(given | {last: np.full_like(given[last], np.nan)})
        with pytest.raises(ZnnpyError, match="set in part only"):
            model.forward(data(model)[0])


@pytest.mark.parametrize("training", [False, True])
def test_what_runs_may_be_made_before_it_does(training):
    with small(training=training, loss="square") as model:
        graphs = model._engine._graphs
        assert graphs.main not in graphs._executors
        model.ready()
        assert graphs.main in graphs._executors
        before = model.task_graph
        model.forward(data(model)[0])
        assert model.task_graph is before
    with small(hardware=Hardware(precision="float64"), loss="square") as model:
        model.ready()
