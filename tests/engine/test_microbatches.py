"""Updates by microbatches: what they mean, and the same bits for any threads, replicas and policies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from loss_cases import cases, named
from model_settings import model_of

from znnpy import Model, Optimizer, load_network
from znnpy.engine import memory_planning
from znnpy.engine.convolution.direct import slab_gradient, weight_gradients
from znnpy.engine.tasks.task_identity import Part, identities
from znnpy.errors import ConfigError, PlanError, ZnnpyError
from znnpy.plan import PASSES
from znnpy.plan.cost import convolutions

OUT = (2, 5, 6)
BITS = {
    "threads": [{"threads": threads} for threads in (0, 2, 3, 8)],
    "policies": [{"threads": 3, "policy": name} for name in ("fifo", "lifo", "random", "layers")],
    "thieves": [{"threads": 3, "steal_seed": 5}],
}


def section(norm: Any = "batch", *, dropout: bool = True) -> dict[str, Any]:
    """A chain with running statistics, dropout and a layer of few channels."""
    dropped = [{"dropout": 0.6}] if dropout else []
    return {
        "layers": [
            {"conv": {"channels": 6, "size": 3, "function": "relu", "norm": norm}},
            *dropped,
            {"max_filter": 2},
            {"conv": {"channels": 18, "size": 3, "function": "tanh"}},
            {"conv": {"channels": 2, "size": 1}},
        ]
    }


def made(net: Any, batch: int, microbatch: int | None, **options: Any) -> Model:
    options = {"threads": 2, "loss": "square", "seed": 3, "conv": "direct"} | options
    return model_of(net, options.pop("output", OUT), batch=batch, microbatch=microbatch, **options)


def data(model: Model, seed: int = 0) -> Any:
    """Inputs, targets between 0 and 1, and weights by voxel that differ from sample to sample."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((model.batch, 1, *model.input_shape)).astype(np.float32)
    shape = (model.batch, 1, *model.output_shape)
    weight = rng.random(shape) * (
        rng.random(shape) > np.linspace(0, 0.8, len(x))[:, None, None, None, None]
    )
    images = model.network.outputs[0].channels
    target = rng.random((model.batch, images, *model.output_shape))
    return x, target.astype(np.float32), weight.astype(np.float32)


def trained(net: Any, batch: int, microbatch: int | None, **options: Any) -> dict[str, Any]:
    """What a model gives: losses, errors, gradients, values and weights after some updates."""
    with made(net, batch, microbatch, **options) as model:
        found: dict[str, Any] = {}
        for update in range(3):
            result = model.result(model.submit(*data(model, update), learning_rate=0.05))
            found[f"result {update}"] = np.array([result.loss, result.error])
        found |= model.parameters
        loss, gradients = model.loss_and_gradients(*data(model, 7))
        found |= {"values": model.forward(data(model, 7)[0]), "loss": np.array(loss)}
        return found | {f"gradient {name}": array for name, array in gradients.items()}


def assert_same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def assert_near(found: dict[str, Any], wanted: dict[str, Any], share: float) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert np.abs(found[name] - array).max() <= share * max(np.abs(array).max(), 0.05), name


@pytest.fixture(scope="module")
def serial() -> dict[str, Any]:
    return trained(section(), 10, 2, threads=1)


@pytest.mark.quick(2)
@pytest.mark.parametrize("how", [how for some in BITS.values() for how in some], ids=str)
def test_bits_are_the_same_however_microbatches_run(how: Any, serial: dict[str, Any]) -> None:
    assert_same(trained(section(), 10, 2, **how), serial)


@pytest.mark.quick(1)
@pytest.mark.parametrize("share", [1e-6, 1e9])
def test_bits_are_the_same_for_any_number_in_flight(
    share: float, serial: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_planning, "CHAIN_SHARE", share)
    with made(section(), 10, 2, threads=8) as model:
        assert model.in_flight == (5 if share < 1 else 1)
    assert_same(trained(section(), 10, 2, threads=8), serial)


@pytest.mark.quick(1)
@pytest.mark.parametrize(("batch", "microbatch"), [(10, 2), (6, 1), (8, 4), (7, 1)])
@pytest.mark.parametrize("optimizer", [Optimizer(), Optimizer("adam")], ids=["sgd", "adam"])
def test_updates_are_those_of_float64(batch: int, microbatch: int, optimizer: Optimizer) -> None:
    options: dict[str, Any] = {"optimizer": optimizer, "clip_norm": 0.05}
    found = trained(section(), batch, microbatch, **options)
    wanted = trained(section(), batch, microbatch, **options, precision="float64")
    assert_near(found, wanted, 3e-3 if optimizer.kind == "adam" else 1e-4)


@pytest.mark.quick(1)
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_without_statistics_of_batches_they_are_those_of_the_whole_batch(precision: Any) -> None:
    """Dropout masks, normalisers and errors count the samples of the whole update."""
    net = section(norm="instance")
    found = trained(net, 6, 2, precision=precision)
    wanted = trained(net, 6, None, precision=precision)
    assert_near(found, wanted, 1e-12 if precision == "float64" else 1e-5)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_what_lies_in_several_places_is_not_staged_at_once(precision: Any) -> None:
    with made(section(), 4, 2, precision=precision) as model:
        for call in (model.staged, model.run):
            with pytest.raises(
                ZnnpyError, match=r"4 samples in microbatches of 2; `forward` takes"
            ):
                call()
    with made(section(), 4, None, precision=precision) as model:
        x = data(model)[0]
        model.staged()["input"][...] = x
        assert np.array_equal(model.run()["output"], model.forward(x))


def test_statistics_are_of_microbatches_and_running_ones_move_once() -> None:
    """By the mean of those that each microbatch alone would have moved them by."""
    net = section(dropout=False)
    with made(net, 6, 2) as model:
        names = [name for name in model.parameters if ".running_" in name]
        x, target, weight = data(model)
        model.step(x, target, weight)
        found = {name: model.parameters[name] for name in names}
    alone = []
    with made(net, 2, None) as model:
        start = model.parameters
        for first in range(0, 6, 2):
            model.set_parameters(start)
            own = slice(first, first + 2)
            model.step(x[own], target[own], weight[own])
            alone.append({name: model.parameters[name] for name in names})
    assert len(names) == 2
    for name in names:
        wanted = np.mean([of[name] for of in alone], axis=0)
        np.testing.assert_allclose(found[name], wanted, rtol=1e-5)
        assert np.abs(found[name] - start[name]).max() > 1e-4


@pytest.mark.quick(3)
@pytest.mark.parametrize(("loss", "function"), cases(), ids=named)
def test_every_loss_is_the_mean_over_the_whole_batch(loss: Any, function: Any) -> None:
    net = {"layers": [{"conv": {"channels": 3, "size": 3, "function": function}}]}
    options: dict[str, Any] = {"loss": loss, "output": (5, 6, 7)}
    with (
        made(net, 6, 2, **options) as model,
        made(net, 6, 2, precision="float64", **options) as exact,
    ):
        rng, (x, _, weight) = np.random.default_rng(0), data(model)
        classes = rng.integers(0, 3, (6, 1, 5, 6, 7))
        target = np.float32(np.arange(3)[:, None, None, None] == classes)
        exact.set_parameters(model.parameters)
        results = [it.result(it.submit(x, target, weight)) for it in (model, exact)]
        found, gradients = model.loss_and_gradients(x, target, weight)
        wanted, doubles = exact.loss_and_gradients(x, target, weight)
    assert results[0].loss == pytest.approx(results[1].loss, rel=1e-5)
    assert results[0].error == pytest.approx(results[1].error, rel=1e-5)
    assert found == pytest.approx(wanted, rel=1e-4)
    for name, gradient in doubles.items():
        assert np.abs(gradients[name] - gradient).max() <= 2e-4 * np.abs(gradient).max()


def test_a_microbatch_that_weighs_nothing_counts_for_nothing() -> None:
    net, found = section(norm="instance", dropout=False), []
    with made(net, 4, 2) as whole, made(net, 2, 2) as half:
        x, target, weight = data(whole)
        weight[2:] = 0
        for model in (whole, half):
            own = (array[: model.batch] for array in (x, target, weight))
            loss, gradients = model.loss_and_gradients(*own)
            found.append({"loss": np.array(loss)} | gradients)
    assert_near(found[0], found[1], 1e-6)


@pytest.mark.slow
def test_convolutions_of_all_algorithms() -> None:
    for conv in ("fft", "spectral"):
        net = section(norm="instance", dropout=False)
        found = [trained(net, 4, 1, conv=conv, threads=threads) for threads in (1, 3)]
        assert_same(*found)
        assert_near(found[0], trained(net, 4, 1, precision="float64"), 1e-4)


WIDE = {
    "layers": [{"conv": {"channels": 18, "size": 3, "function": "relu"}} for _ in range(4)]
    + [{"conv": {"channels": 2, "size": 1}}]
}
MADE_OF_FILTERS = {"spectral": Part.FILTER_TILES, "winograd": Part.FILTER_POINTS}


def by(algorithm: str) -> dict[str, Any]:
    """A plan of WIDE that runs so wherever it can."""
    tile = {f"{which}_tile": [8, 8, 8] for which in PASSES} if algorithm == "spectral" else {}
    there, direct = (dict.fromkeys(PASSES, name) for name in (algorithm, "direct"))
    edges = convolutions(load_network(WIDE))
    return {
        edge.name: there | tile if edge.size == (3, 3, 3) and edge.source != "input" else direct
        for edge in edges
    }


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", MADE_OF_FILTERS)
def test_what_follows_from_filters_is_made_once_an_update_where_there_is_memory(
    algorithm: str,
) -> None:
    def tasks(batch: int, microbatch: int | None, limit: int | None = None) -> tuple[int, int]:
        # Cut for so many, tasks are as short as can be, however many microbatches there are.
        options = {"plan": by(algorithm), "threads": 1, "max_memory": limit, "cut_for": 4096}
        with made(WIDE, batch, microbatch, **options) as model:
            parts = [what.part for what in identities(model.task_graph)]
            return parts.count(MADE_OF_FILTERS[algorithm]), model.memory

    alone, _ = tasks(2, None)
    found, memory = tasks(8, 2)
    assert found == alone > 0
    assert tasks(8, 2, memory)[0] == alone
    assert tasks(8, 2, memory - 1)[0] == 4 * alone


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", MADE_OF_FILTERS)
def test_bits_are_the_same_whenever_filters_are_transformed(algorithm: str) -> None:
    options: dict[str, Any] = {"plan": by(algorithm), "threads": 2}
    with made(WIDE, 6, 2, **options) as model:
        limit = model.memory - 1
    assert_same(trained(WIDE, 6, 2, **options, max_memory=limit), trained(WIDE, 6, 2, **options))


CONNECTED = {
    "layers": [
        {"conv": {"channels": 18, "size": [1, 3, 3], "function": "relu"}},
        {"conv": {"channels": 40, "size": [1, 2, 3], "function": "tanh"}},
        {"conv": {"channels": 2, "size": 1}},
    ]
}


TAPPED = {
    "layers": [
        {"conv": {"channels": 16, "size": 3, "function": "relu"}},
        {"conv": {"channels": 32, "size": 3, "function": "tanh"}},
        {"conv": {"channels": 2, "size": 1}},
    ]
}


@pytest.mark.quick(2)
@pytest.mark.parametrize("count", [2, 11, 33])  # 33: more additions than one task makes
@pytest.mark.parametrize(
    ("net", "microbatch", "output", "several"),
    [(CONNECTED, 2, 1, False), (TAPPED, 1, (2, 16, 16), True)],
    ids=["whole pieces", "ranges of tap rows"],
)
def test_weight_gradients_add_what_earlier_microbatches_have_left(
    count: int,
    net: Any,
    microbatch: int,
    output: Any,
    several: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the bits of additions by tasks of their own, by one task a piece or several."""
    sizes = count * microbatch, microbatch

    def of(part: Part) -> int:
        with made(net, *sizes, output=output) as model:
            tasks = identities(model.task_graph)
            return sum((it.owner, it.part) == ("conv2", part) for it in tasks)

    found, left, by = trained(net, *sizes, output=output), of(Part.MICROBATCHES), of(Part.DIRECT)
    monkeypatch.setattr(weight_gradients, "MOST_EARLIER", 0)
    assert_same(found, trained(net, *sizes, output=output))
    assert of(Part.MICROBATCHES) > left
    assert bool(left) == (count == 33)
    monkeypatch.setattr(slab_gradient, "ranges", lambda rows, _, beside: [(0, rows)])
    # Pieces of many microbatches may be taken apart, too, as the grain asks for.
    assert by > of(Part.DIRECT) or not several


@pytest.mark.slow
def test_memory_is_that_of_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    net = section(dropout=False)
    sizes = {}
    for batch, microbatch in ((32, None), (32, 2), (2, None)):
        with made(net, batch, microbatch, threads=1, output=(8, 16, 16)) as model:
            sizes[batch, microbatch] = (
                model._engine._arena.bytes
            )  # of tasks, each microbatch has its own
            assert model.in_flight == 1
    assert sizes[32, 2] < sizes[32, None] / 3
    monkeypatch.setattr(memory_planning, "CHAIN_SHARE", 1e-6)
    with made(net, 32, 2, threads=8, output=(8, 16, 16)) as model:
        assert model.in_flight == 8
        limit = model.memory * 2 // 3
    with made(net, 32, 2, threads=8, output=(8, 16, 16), max_memory=limit) as model:
        assert 1 <= model.in_flight < 8
        assert model.memory <= limit
    with pytest.raises(PlanError, match="max_memory"):
        made(net, 32, 2, threads=8, output=(8, 16, 16), max_memory=sizes[2, None] // 2)


@pytest.mark.slow
def test_more_threads_have_more_in_flight() -> None:
    net = section(dropout=False)
    with made(net, 16, 1, threads=1) as model:
        assert model.in_flight == 1
        few, many = (model.task_graph_for(threads) for threads in (1, 16))
    assert many.span < few.span / 4


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"microbatch.*must divide batch, which is 6; 3 would"):
        made(section(), 6, 4)
    single = {"layers": [{"conv": {"channels": 2, "size": 3, "norm": "batch"}}]}
    with pytest.raises(ZnnpyError, match="one voxel"):
        made(single, 4, 1, output=(1, 1, 1))
