"""Whole networks against the float64 reference, by every algorithm."""

import weakref
from functools import cache
from types import MappingProxyType

import numpy as np
import pytest
import random_networks as rn
from against_reference import assert_close, check
from model_settings import model_of

from znnpy.engine import Hardware, Model, Optimizer
from znnpy.engine.memory.parameters import pack_parameter
from znnpy.errors import PlanError, RunError, ShapeError, ZnnpyError
from znnpy.file_arrays import FileArray, KeptFile
from znnpy.network import initial_parameters
from znnpy.network.types import Edge, Network, Node

TILED = "fft", "spectral"
NEAR_TIES = {4}
"""Seeds of networks in which two maxima lie so near that FFTW's choice of a plan decides between them."""


@pytest.mark.quick(1)
@pytest.mark.parametrize("seed", range(8))
def test_random_networks_equal_the_reference(seed):
    tiled = ("spectral",) if seed in NEAR_TIES else TILED
    check(seed, ("direct", *tiled), rn.loss_of(seed))


@pytest.mark.share(24)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8, 50))
def test_more_random_networks(seed):
    check(seed, ("direct", TILED[seed // 3 % 2]), rn.loss_of(seed))


def small():
    nodes = (Node("input", "input", 2), Node("a", "transfer", 18, function="tanh"),
             Node("b", "transfer", 18, bias=False), Node("out", "transfer", 3))  # fmt: skip
    edges = (
        Edge("c1", "conv", "input", "a", size=(2, 3, 3)),
        Edge("d", "dropout", "a", "b", keep=0.6),
        Edge("c2", "conv", "b", "out", size=(1, 2, 3)),
    )
    return Network(nodes, edges)


def data(model, seed=3):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((model.batch, 2, *model.input_shape)).astype(np.float32)
    target = (rng.random((model.batch, 3, *model.output_shape)) > 0.5).astype(np.float32)
    return x, target


def test_dropout_gradients_by_finite_differences():
    with Model(small(), (2, 3, 4), threads=1, seed=4) as model:
        x, target = data(model)
        _, gradients = model.loss_and_gradients(x, target)
        start = model.parameters
        rng = np.random.default_rng(0)
        for name in ("c1", "c2", "a"):
            direction = rng.standard_normal(start[name].shape).astype(np.float32)
            losses = []
            for sign in (1, -1):
                model.set_parameters({name: start[name] + sign * 1e-2 * direction})
                losses.append(model.loss_and_gradients(x, target)[0])
            model.set_parameters(start)
            slope = (losses[0] - losses[1]) / 2e-2
            assert slope == pytest.approx(float((direction * gradients[name]).sum()), rel=2e-2)


def test_dropout_is_off_in_forward_and_changes_with_the_iteration():
    with Model(small(), (2, 3, 4), threads=1, seed=4) as model:
        x, target = data(model)
        assert np.array_equal(model.forward(x), model.forward(x))
        first = model.loss_and_gradients(x, target)[0]
        assert model.loss_and_gradients(x, target)[0] == first
        model.iteration += 1
        assert model.loss_and_gradients(x, target)[0] != first


def trained(updates=20, **options):
    with model_of(small(), (6, 7, 8), batch=2, seed=1, **options) as model:
        for update in range(updates):
            x, target = data(model, update)
            model.step(x, target, learning_rate=0.1)
        return model.parameters


@cache
def serial(conv):
    return trained(threads=0, conv=conv)


def assert_same_bits(conv, **options):
    wanted, found = serial(conv), trained(conv=conv, **options)
    for name, values in wanted.items():
        assert np.array_equal(found[name], values), name


@pytest.mark.quick(2)
@pytest.mark.parametrize("conv", ["direct", "fft"])
@pytest.mark.parametrize("threads", [8, 3, 2, 1])
def test_same_bits_for_any_number_of_threads(conv, threads):
    assert_same_bits(conv, threads=threads)


@pytest.mark.quick(2)
@pytest.mark.parametrize("seed", range(8))
def test_same_bits_for_any_steal_seed_and_policy(seed):
    policy = ("critical-path", "random", "fifo", "distance")[seed % 4]
    assert_same_bits("direct", threads=3, steal_seed=seed, policy=policy)


def test_pipelined_steps_equal_steps_one_by_one():
    with Model(small(), (6, 7, 8), seed=1, threads=2, conv="direct") as model:
        tickets = []
        for update in range(9):
            tickets.append(model.submit(*data(model, update), learning_rate=0.1))
        pipelined = model.parameters
        assert model.iteration == 9
    with Model(small(), (6, 7, 8), seed=1, threads=2, conv="direct") as model:
        for update in range(9):
            model.step(*data(model, update), learning_rate=0.1)
            model.drain()
        one_by_one = model.parameters
    assert all(np.array_equal(pipelined[name], one_by_one[name]) for name in pipelined)


def test_planned_memory_is_what_is_reserved_and_limits_are_obeyed():
    with Model(small(), (22, 23, 24), threads=1, conv="direct") as model:
        needed = model.memory
    with Model(
        small(), (22, 23, 24), threads=1, conv="direct", hardware=Hardware(max_memory=needed)
    ):
        pass
    with pytest.raises(PlanError, match=r"output_shape .* would fit"):
        Model(
            small(),
            (22, 23, 24),
            threads=1,
            conv="direct",
            hardware=Hardware(max_memory=needed * 2 // 3),
        )


def test_wrong_arrays_are_refused_with_what_would_fit():
    with Model(small(), (2, 3, 4), threads=1, conv="direct") as model:
        x, target = data(model)
        with pytest.raises(ShapeError, match=r"input of node 'input'.*takes 1 x 2 x 3 x 6 x 8"):
            model.forward(x[..., 1:])
        with pytest.raises(ShapeError, match="target of node 'out'"):
            model.loss_and_gradients(x, target[:, :2])
        with pytest.raises(ShapeError, match="no parameter 'c3'"):
            model.set_parameters({"c3": np.zeros(3)})
        with pytest.raises(ShapeError, match=r"parameter 'c2': shape .* has 3 x 18 x 1 x 2 x 3"):
            model.set_parameters({"c2": np.zeros((3, 18, 1, 2, 2))})


def test_the_first_bad_layer_is_named():
    with Model(small(), (2, 3, 4), threads=1, conv="direct") as model:
        assert model.non_finite_layer() is None
        broken = model.parameters["c2"]
        broken[0, 0, 0, 0, 0] = np.nan
        model.set_parameters({"c2": broken})
        model.forward(data(model)[0])
        assert model.non_finite_layer() == "out"


def test_float64_updates_agree_with_float32():
    options = {"optimizer": Optimizer("adam", weight_decay=0.01), "clip_norm": 0.5}
    results = []
    for precision in ("float32", "float64"):
        with model_of(
            small(), (2, 3, 4), seed=2, threads=1, conv="direct", precision=precision, **options
        ) as model:
            losses = [model.step(*data(model, k), learning_rate=1e-2) for k in range(5)]
            results.append((losses, model.parameters))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-4)
    for name, wanted in results[1][1].items():
        assert wanted.dtype == np.float64
        assert_close(results[0][1][name], wanted)


def test_parameters_are_drawn_unless_all_are_set(monkeypatch):
    options = {"threads": 1, "conv": "direct"}
    with model_of(small(), (2, 3, 4), seed=2, **options) as model:
        drawn = model.parameters
        *_, last = drawn
        shorter = {name: 2 * array for name, array in drawn.items() if name != last}
    with model_of(small(), (2, 3, 4), seed=2, **options) as model:
        model.set_parameters(shorter)
        assert np.array_equal(model.parameters[last], drawn[last])
    monkeypatch.setattr("znnpy.engine.model.initial_parameters", None)
    with model_of(small(), (2, 3, 4), seed=2, **options) as model:
        assert model.memory
        model.set_parameters(drawn)
        assert all(np.array_equal(model.parameters[name], drawn[name]) for name in drawn)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_parameters_that_are_taken_go_one_by_one(monkeypatch, precision):
    alive, refs = [], []

    def packed(parameter, array, target):
        alive.append(sum(ref() is not None for ref in refs))
        pack_parameter(parameter, array, target)

    monkeypatch.setattr("znnpy.engine.float32_engine.pack_parameter", packed)
    options = {"threads": 1, "conv": "direct", "precision": precision}
    with model_of(small(), (2, 3, 4), seed=2, **options) as model:
        wanted = {name: 2 * array for name, array in model.parameters.items()}
        given = {name: array.copy() for name, array in wanted.items()}
        refs += [weakref.ref(array) for array in given.values()]
        alive.clear()
        last = given.popitem()
        with pytest.raises(ShapeError, match=f"no '{last[0]}'"):
            model.take_parameters(given)
        with pytest.raises(
            ShapeError, match="must be a dict, which is emptied; found mappingproxy"
        ):
            model.take_parameters(MappingProxyType(given))
        assert len(given) == len(wanted) - 1
        given[last[0]] = last[1]
        del last
        model.take_parameters(given)
        assert given == {}
        assert alive == ([*range(len(wanted), 0, -1)] if precision == "float32" else [])
        assert all(np.array_equal(model.parameters[name], wanted[name]) for name in wanted)


def test_a_model_whose_parameters_were_set_in_part_does_nothing(tmp_path):
    """Until all are set: it would be of nobody's, also where updates are handed over quickly."""
    path = tmp_path / "weights"
    with model_of(small(), (2, 3, 4), seed=2, threads=1, conv="direct") as model:
        given, batch = {name: 2 * array for name, array in model.parameters.items()}, data(model)
        for _ in range(3):
            ticket = model.submit(*batch, learning_rate=0.01)
        *_, last = given
        path.write_bytes(given[last].tobytes()[:-1])
        there = FileArray.plain(KeptFile(path), 0, given[last].shape, given[last].dtype)
        with pytest.raises(RunError, match="cut short"):
            model.set_parameters(given | {last: there})
        for call in (
            lambda: model.submit(*batch, learning_rate=0.01),
            lambda: model.forward(batch[0]),
            lambda: model.parameters,
            lambda: model.set_parameters({last: given[last]}),
        ):
            with pytest.raises(ZnnpyError, match="set in part"):
                call()
        # What was done before stays.
        assert model.result(ticket).loss > 0
        model.drain()
        model.set_parameters(given)
        assert all(np.array_equal(model.parameters[name], given[name]) for name in given)
        assert model.submit(*batch, learning_rate=0.01) == ticket + 1


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_model_whose_optimizer_was_set_in_part_does_nothing(precision, monkeypatch):
    """Until all of it is set."""
    options = {"optimizer": "adam", "threads": 1, "conv": "direct", "precision": precision}
    with model_of(small(), (2, 3, 4), seed=2, **options) as model:
        batch = data(model)
        for _ in range(3):
            model.step(*batch, learning_rate=0.01)
        states, parameters = model.optimizer_state, model.parameters
        wanted = [model.step(*batch, learning_rate=0.01) for _ in range(3)]

        def cut(engine, values):
            name, *_ = values
            whole(engine, values | {name: 0 * values[name]})
            raise KeyboardInterrupt

        engine = type(model._opened)
        whole = engine.set_states
        with monkeypatch.context() as patch:
            patch.setattr(engine, "set_states", cut)
            with pytest.raises(KeyboardInterrupt):
                model.set_optimizer_state(states)
        for call in (
            lambda: model.submit(*batch, learning_rate=0.01),
            lambda: model.step(*batch, learning_rate=0.01),
            lambda: model.optimizer_state,
        ):
            with pytest.raises(ZnnpyError, match=r"optimiser's buffers .* set in part"):
                call()
        model.set_parameters(parameters)
        model.set_optimizer_state(states)
        model.iteration = 3
        assert [model.step(*batch, learning_rate=0.01) for _ in range(3)] == wanted


def test_parameters_whose_drawing_was_interrupted_are_drawn_again(monkeypatch):
    with model_of(small(), (2, 3, 4), seed=2, threads=1, conv="direct") as model:
        with monkeypatch.context() as patch:
            patch.setattr("znnpy.engine.float32_engine.pack_parameter", interrupted)
            with pytest.raises(KeyboardInterrupt):
                _ = model.parameters
        wanted = initial_parameters(model.network, 2)
        assert all(np.array_equal(model.parameters[name], wanted[name]) for name in wanted)


def interrupted(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_state_and_parameters_carry_a_run_over(kind):
    options = {"optimizer": Optimizer(kind, weight_decay=0.1), "threads": 2, "conv": "direct"}
    with model_of(small(), (2, 3, 4), seed=2, **options) as model:
        for update in range(6):
            model.step(*data(model, update), learning_rate=0.02)
            if update == 2:
                kept = model.parameters, model.optimizer_state, model.iteration
        wanted = model.parameters
    with model_of(small(), (2, 3, 4), seed=2, **options) as model:
        model.set_parameters(kept[0])
        model.set_optimizer_state(kept[1])
        model.iteration = kept[2]
        for update in range(3, 6):
            model.step(*data(model, update), learning_rate=0.02)
        assert all(np.array_equal(model.parameters[name], wanted[name]) for name in wanted)


@pytest.mark.quick(1)
@pytest.mark.parametrize("seed", range(4))
def test_filters_that_exceed_the_cache_are_transformed_where_they_are_used(seed, monkeypatch):
    monkeypatch.setattr("znnpy.engine.convolution.fft.filters.CACHED_FLOATS", 0)
    check(seed, ("fft",), rn.loss_of(seed))
