"""Graphs that were kept are those that would be connected anew, and train to the same bits."""

import errno
import inspect
import json
import os
import subprocess
import sys
from dataclasses import fields
from typing import NamedTuple

import numpy as np
import pytest
from random_networks import random_network
from small_models import data, small

from znnpy import Execution, Hardware, Model, Optimizer, Training
from znnpy.engine import execution, memory_planning
from znnpy.engine.kept import folder, graphs
from znnpy.engine.memory import filter_file
from znnpy.engine.memory_planning import planned_within, with_tasks
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


SHAPES = "input_shapes", "output_shapes"


class Found(NamedTuple):
    """What a model has trained to, and its bytes."""

    losses: list[float]
    memory: int


def files(kept):
    return [*kept.iterdir()]


def drawn(model, shapes):
    rng, network = np.random.default_rng(1), model.network
    return {
        name: rng.standard_normal((model.batch, network.node(name).channels, *shape), np.float32)
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


def trained(seed, **options):
    """Losses and parameters after some updates, and the model, whose tables are those that it would connect."""
    net, shape = random_network(seed)
    conv = ("direct", "spectral", "winograd")[seed % 3]
    options = {"threads": 2, "conv": conv, "loss": "square", "seed": seed} | options
    with Model(net, shape, **options) as model:
        x = drawn(model, model.geometry.input_shapes)
        target = drawn(model, model.geometry.output_shapes)
        losses = [model.step(x, target) for _ in range(3)]
        own = model._engine._graphs
        for name, executor in own._executors.items():
            same(executor.graph, own._connected_here(name))
        return losses, model.parameters, model


def start_again(kept, made, seed, **options):
    """Train twice, and compare all with what is connected anew; return the second model."""
    losses, parameters, _ = trained(seed, **options)
    (file,) = files(kept)
    before = file.read_bytes()
    made.clear()
    again, found, model = trained(seed, **options)
    # For what is compared alone.
    assert "plan" not in made
    assert made.count("update") == 1
    assert losses == again
    for name, wanted in parameters.items():
        np.testing.assert_array_equal(found[name], wanted)
    asked = model._layout, model._settings
    plan, anew = graphs.recalled(*asked), with_tasks(planned_within(*asked, keep=True), asked[1])
    for it in fields(plan):
        if it.name not in ("tasks", "connected"):
            assert getattr(plan, it.name) == getattr(anew, it.name), it.name
    assert file.read_bytes() == before
    return model


@pytest.mark.parametrize("seed", range(9))
def test_kept_graphs_are_those_connected_anew(kept, made, seed):
    """In the memory of the model that has them, word by word; and so are the plan, and what is trained."""
    start_again(kept, made, seed)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("in_flight", [1, 2])
def test_so_are_those_of_several_microbatches(kept, made, seed, in_flight, monkeypatch):
    monkeypatch.setattr(memory_planning, "_wanted", lambda *_: in_flight)
    many = Training(microbatch=1, clip_norm=0.5)
    model = start_again(kept, made, seed, batch=3, training=many)
    assert model.in_flight == in_flight


@pytest.mark.parametrize("batch", [1, 2])
def test_and_those_that_compute_values_again(kept, made, batch):
    layer = {"conv": {"channels": 4, "size": 3, "function": "tanh"}}
    options = {"threads": 1, "conv": "direct", "batch": batch, "loss": "square"}
    options["training"] = Training(microbatch=1)
    x, target = (
        np.ones((batch, *shape), np.float32) for shape in ((1, 20, 20, 20), (4, 12, 12, 12))
    )
    found = []
    for share in (1, 0.95, 0.95):
        most = Hardware(max_memory=int(found[0].memory * share)) if found else Hardware()
        made.clear()
        with Model({"layers": [layer] * 4}, 12, **options, hardware=most) as model:
            assert bool(model._engine._graphs._sharing.again) == bool(found)
            losses = [model.step(x, target) for _ in range(3)]
            wanted = model._engine._graphs
            same(model.task_graph, wanted._connected_here("update"))
            found.append(Found(losses, model.memory))
    assert made == ["update"]  # for what is compared
    assert found[0].losses == found[1].losses == found[2].losses


SGD = Optimizer("sgd", nesterov=True, weight_decay=0.1)
ADAM = Optimizer("adam", beta1=0.5, beta2=0.9, eps=0.1, decoupled=True, weight_decay=0.1)
LARS = Optimizer("lars", trust=0.1, momentum=0.3, weight_decay=0.5)
NUMBERS = (
    ({}, {"seed": 7}),
    ({"clip_norm": 0.5}, {"clip_norm": 0.01, "seed": 3}),
    ({"optimizer": Optimizer("sgd", momentum=0.5)}, {"optimizer": SGD}),
    ({"optimizer": Optimizer("adam")}, {"optimizer": ADAM}),
    (
        {"optimizer": Optimizer("adamw", ema=0.9)},
        {"optimizer": Optimizer("adamw", ema=0.5, weight_decay=0.5)},
    ),
    (
        {"optimizer": Optimizer("lamb")},
        {"optimizer": Optimizer("lamb", beta1=0.5, weight_decay=0.5)},
    ),
    ({"optimizer": Optimizer("lars"), "clip_norm": 1.0}, {"optimizer": LARS, "clip_norm": 0.1}),
)


@pytest.mark.parametrize("microbatch", [1, 2])
@pytest.mark.parametrize(("one", "other"), NUMBERS)
def test_other_seeds_and_numbers_of_optimisers_take_the_same_graph(
    kept, made, one, other, microbatch
):
    """To the bits that they train to with graphs of their own."""

    def learned(rate, given, hardware=None):
        own = {"training": Training(microbatch=microbatch, clip_norm=given.get("clip_norm"))}
        own |= {name: value for name, value in given.items() if name != "clip_norm"}
        layer = {"conv": {"channels": 3, "size": 3, "function": "tanh"}}
        net = {"layers": [layer, {"dropout": 0.5}, layer]}
        own |= {"batch": 2, "threads": 1, "conv": "direct", "loss": "square", "hardware": hardware}
        with Model(net, 3, **own) as model:
            x, target = (drawn(model, getattr(model.geometry, it)) for it in SHAPES)
            losses = [model.step(x, target, learning_rate=rate) for _ in range(3)]
            _, gradients = model.loss_and_gradients(x, target)
            states = model.optimizer_state
            return losses, *(it.values() for it in (model.parameters, states, gradients))

    wanted = learned(0.1, other)
    for file in files(kept):
        file.unlink()
    first = learned(0.2, one)
    assert first[0] != wanted[0]
    (file,) = files(kept)
    before = file.read_bytes()
    made.clear()
    found = learned(0.1, other)
    assert made == ["gradients"]
    assert file.read_bytes() == before
    assert found[0] == wanted[0]
    for arrays in zip(found[1:], wanted[1:], strict=True):
        for ours, its in zip(*arrays, strict=True):
            np.testing.assert_array_equal(ours, its)
    exact, *_ = learned(0.1, other, Hardware(precision="float64"))
    np.testing.assert_allclose(found[0], exact, rtol=1e-4)


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


NEXT = """
import json, sys
from pathlib import Path
sys.path[:0] = json.loads(sys.argv[2])
from small_models import data, small
from znnpy.engine.kept import folder
folder.home = lambda: Path(sys.argv[1])
exec(sys.argv[3])
found, late = ways(), ("znnpy.engine.emit", "znnpy_kernels.layers.losses")
print(json.dumps([next(found), [name for name in late if name in sys.modules], *found]))
"""


def ways():
    """Losses of updates of a small model, then what other graphs of it give."""
    with small(loss="square") as model:
        x, target = data(model)
        yield [model.step(x, target) for _ in range(2)]
        loss, gradients = model.loss_and_gradients(x, target)
        yield [loss, *(float(abs(it).sum()) for it in gradients.values())]
        yield float(model.forward(x).sum())


def test_the_next_process_loads_what_declares_tasks_for_other_graphs_alone(kept):
    wanted = [*ways()]
    assert len(files(kept)) == 1
    places = json.dumps([path for path in sys.path if "tests" in path])
    command = [sys.executable, "-c", NEXT, str(kept), places, inspect.getsource(ways)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    losses, loaded, *others = json.loads(found.stdout)
    assert not loaded
    assert [losses, *others] == wanted


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


def test_small_graphs_are_not_kept(kept, monkeypatch):
    monkeypatch.setattr(graphs, "LEAST_CALLS", 1 << 20)
    with small((6, 6, 6), loss="square") as model:
        model.step(*data(model))
    assert not files(kept)


def test_a_full_disk_is_told(kept, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(folder.Path, "replace", full)
    with small(loss="square") as model, pytest.warns(UserWarning, match="not kept: No space left"):
        model.step(*data(model))
    assert not files(kept)
