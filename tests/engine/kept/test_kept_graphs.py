"""Graphs that were kept are those that would be connected anew, and train to the same bits."""

import errno
import os
from dataclasses import fields

import numpy as np
import pytest
from random_networks import random_network
from small_models import data, small

from znnpy import Execution, Hardware, Model
from znnpy.engine import execution
from znnpy.engine.kept import folder, graphs
from znnpy.engine.memory import filter_file
from znnpy.engine.memory_planning import planned_within
from znnpy.graph import TaskGraph
from znnpy.network import initial_parameters, load_network


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A folder of its own, where graphs of small models are kept, too."""
    monkeypatch.setattr(folder, "home", lambda: tmp_path / "graphs")
    monkeypatch.setattr(graphs, "LEAST_CALLS", 1)
    (tmp_path / "graphs").mkdir(mode=0o700)
    return tmp_path / "graphs"


@pytest.fixture
def made(monkeypatch):
    """What was declared or planned since."""
    found, planned, declared = [], graphs.planned_within, execution.declare
    monkeypatch.setattr(
        graphs, "planned_within", lambda *a, **k: found.append("plan") or planned(*a, **k)
    )
    monkeypatch.setattr(
        execution, "declare", lambda name, *a: found.append(name) or declared(name, *a)
    )
    return found


def files(kept):
    return [*kept.iterdir()]


def drawn(model, shapes):
    rng, network = np.random.default_rng(1), model.network
    return {
        name: rng.standard_normal((1, network.node(name).channels, *shape), np.float32)
        for name, shape in shapes.items()
    }


def same(ours, wanted):
    for it in fields(TaskGraph):
        own, other = getattr(ours, it.name), getattr(wanted, it.name)
        if isinstance(own, np.ndarray):
            np.testing.assert_array_equal(own, other, err_msg=it.name)
            assert own.dtype == other.dtype
        else:
            assert own == other


def trained(seed):
    """Losses and parameters after some updates, and the model, whose tables are those that it would connect."""
    net, shape = random_network(seed)
    conv = ("direct", "spectral", "winograd")[seed % 3]
    with Model(net, shape, threads=2, conv=conv, loss="square", seed=seed) as model:
        x = drawn(model, model.geometry.input_shapes)
        target = drawn(model, model.geometry.output_shapes)
        losses = [model.step(x, target) for _ in range(3)]
        own = model._engine._graphs
        for name, executor in own._executors.items():
            same(executor.graph, own._connected_here(name))
        return losses, model.parameters, model


@pytest.mark.parametrize("seed", range(9))
def test_kept_graphs_are_those_connected_anew(kept, made, seed):
    """In the memory of the model that has them, word by word; and so are the plan, and what is trained."""
    losses, parameters, _ = trained(seed)
    (file,) = files(kept)
    before = file.read_bytes()
    made.clear()
    again, found, model = trained(seed)
    # For what is compared alone.
    assert "plan" not in made
    assert made.count("update") == 1
    assert losses == again
    for name, wanted in parameters.items():
        np.testing.assert_array_equal(found[name], wanted)
    plan, anew = (
        make(model._layout, model._settings) for make in (graphs.recalled, planned_within)
    )
    for it in fields(plan):
        if it.name not in ("tasks", "connected"):
            assert getattr(plan, it.name) == getattr(anew, it.name), it.name
    assert file.read_bytes() == before


@pytest.mark.parametrize("lean", [False, True])
def test_predictions_have_theirs(kept, made, lean):
    x = np.ones((1, 1, 7, 7, 7), np.float32)
    found = []
    for _ in range(2):
        made.clear()
        with small(training=False, lean=lean) as model:
            found.append(model.forward(x))
    assert made in ([], ["derive"])  # which has no tasks here
    np.testing.assert_array_equal(*found)


def test_filters_that_wait_in_a_file_are_read_where_they_lie(kept, made, monkeypatch):
    monkeypatch.setattr(filter_file, "LEAST", 8 << 10)
    monkeypatch.setattr(filter_file, "WORTH", 1)
    monkeypatch.setattr(filter_file, "PRODUCTS", 0)
    net = load_network({"unet": {"widths": [8, 48], "pool": "strided", "norm": "instance"}})
    options = {"training": False, "threads": 2, "execution": Execution(lean=True)}
    x = np.random.default_rng(0).standard_normal((1, 1, 8, 16, 16), np.float32)
    found = []
    for seed in (0, 1, 0):  # each process has its own weights
        made.clear()
        with Model(net, (8, 16, 16), conv="winograd", **options) as model:
            assert model._engine._file
            model.set_parameters(initial_parameters(net, seed))
            found.append(model.forward(x))
    assert not made
    np.testing.assert_array_equal(found[0], found[2])
    assert (found[0] != found[1]).any()


def test_other_graphs_of_such_a_model_are_connected_when_they_are_asked_for(kept, made):
    found = []
    for _ in range(2):
        made.clear()
        with small(loss="square") as model:
            x, target = data(model)
            model.step(x, target)
            _, gradients = model.loss_and_gradients(x, target)
            assert model.non_finite_layer() is None
            found.append((model.forward(x), *gradients.values()))
    assert sorted(made) == ["forward", "gradients"]
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("size", [0, 100, 1000])
def test_a_file_that_was_cut_short_is_made_again(kept, made, size):
    def loss():
        with small(loss="square") as model:
            return model.step(*data(model))

    wanted = loss()
    (file,) = files(kept)
    whole = file.read_bytes()
    with file.open("r+b") as cut:
        cut.truncate(size)
    made.clear()
    assert loss() == wanted
    assert made == ["plan"]
    assert file.read_bytes() == whole


@pytest.mark.parametrize("which", ["few", "microbatches"])
def test_what_is_not_kept(kept, monkeypatch, which):
    """Small graphs, and those of which the plan has no tasks."""
    options = {"loss": "square"}
    if which == "few":
        monkeypatch.setattr(graphs, "LEAST_CALLS", 1 << 20)
    if which == "microbatches":
        options |= {"batch": 2, "microbatch": 1}
    with small((6, 6, 6), **options) as model:
        model.step(*data(model))
    assert not files(kept)


def test_where_memory_is_short_tasks_are_declared_anew(kept):
    """The plan's are those of before anything was recomputed."""
    layer = {"conv": {"channels": 4, "size": 3, "function": "tanh"}}
    sizes, options = ({"layers": [layer] * 4}, 12), {"threads": 1, "conv": "direct"}
    with Model(*sizes, **options, loss="square") as model:
        most = Hardware(max_memory=model.memory * 19 // 20)
    with Model(*sizes, **options, loss="square", hardware=most) as model:
        assert model._engine._graphs._sharing.again
        assert model.task_graph
    assert not files(kept)


def test_a_full_disk_is_told(kept, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(folder.Path, "replace", full)
    with small(loss="square") as model, pytest.warns(UserWarning, match="not kept: No space left"):
        model.step(*data(model))
    assert not files(kept)
