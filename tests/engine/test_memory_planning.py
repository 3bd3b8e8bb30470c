"""Memory is planned once for every layout that is looked at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from model_settings import model_of
from small_models import small
from znnpy_kernels.machine.abi import Kernel

from znnpy import load_network
from znnpy.config.training_section import DistributedSection
from znnpy.distributed.reduction_tree import Ranks
from znnpy.distributed.strategies import strategy
from znnpy.distributed.world import World
from znnpy.engine import construction, memory_planning
from znnpy.engine.communication.gradient_exchange import Party
from znnpy.engine.memory.limits import (
    copied_bytes,
    image_bytes,
    least_bytes,
    parameter_bytes,
)
from znnpy.geometry import fit


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The layouts that memory is planned for."""
    found: list[Any] = []
    whole = memory_planning._OneMicrobatch.of

    def told(layout: Any, settings: Any, **how: Any) -> Any:
        found.append(layout)
        return whole(layout, settings, **how)

    monkeypatch.setattr(memory_planning._OneMicrobatch, "of", told)
    return found


@pytest.mark.parametrize("limit", [None, 1 << 30])
def test_a_model_plans_once(planned: list[Any], limit: int | None) -> None:
    with small(max_memory=limit) as model:
        assert planned == [model._layout]


UNET = {"unet": {"widths": [8, 16, 32], "norm": "batch"}}


def test_what_fits_into_little_memory_fits_into_more() -> None:
    sizes: dict[str, Any] = {"output_shape": (16, 16, 16), "conv": "direct", "threads": 2}
    network = load_network(UNET)
    with model_of(network, **sizes) as model:
        whole = model.memory
        tight = replace(model._settings, max_memory=1)
        least = memory_planning.planned_bytes(model._layout, tight)
    assert least < 0.9 * whole
    for limit in range(least, whole, (whole - least) // 4):
        with model_of(network, **sizes, max_memory=limit) as model:
            assert model.memory <= limit


def test_a_model_of_several_microbatches_plans_no_layout_twice(planned: list[Any]) -> None:
    sizes: dict[str, Any] = {"batch": 4, "microbatch": 1, "threads": 2}
    with small(**sizes) as model:
        memory = model.memory
    assert 1 <= len(planned) == len(set(map(id, planned))) <= 2
    planned.clear()
    with small(**sizes, max_memory=memory - 1):
        assert all(a != b for n, a in enumerate(planned) for b in planned[:n])


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_forecast_plans_no_layout_twice(planned: list[Any], size: int) -> None:
    """Its bytes are those of the plan that a model would have."""
    with small(batch=4, microbatch=size, threads=2) as model:
        layout, settings, memory = model._layout, model._settings, model.memory
    planned.clear()
    found = memory_planning.forecast(layout, settings)
    assert 1 <= len(planned) == len(set(map(id, planned))) <= 2
    assert all(a != b for n, a in enumerate(planned) for b in planned[:n])
    assert found.bytes == memory
    assert found.seconds >= found.least > 0


def test_ranks_leave_room_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `max_memory`, what microbatches take that are under way at once is half of a machine's in all."""
    monkeypatch.setattr(memory_planning, "CHAIN_SHARE", 1e-9)
    with small(batch=16, microbatch=1, threads=4) as model:
        layout, settings = replace(model._layout, numbers=range(4)), model._settings
        several = model.memory
    assert model.in_flight == 4
    ranks = Ranks.of(16, 4), strategy("tree"), 0
    for whole, beside, enough in ((16, 4, True), (4, 4, False), (4, 1, True)):
        monkeypatch.setattr(memory_planning, "whole_memory", lambda whole=whole: whole * several)
        together = replace(settings, party=Party(*ranks, beside=beside))
        found = memory_planning.planned_with_replicas(layout, together).layout
        assert (found.replicas == 4) == enough
    assert memory_planning.planned_with_replicas(layout, settings).layout.replicas == 4


class AskedError(Exception):
    """What a model asks whether it is hopeless."""


@pytest.mark.parametrize(("size", "own"), [(1, 12), (2, 8), (3, 4)])
def test_a_rank_stages_its_own_samples_alone(
    size: int, own: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Several(World):
        """So many ranks of one host."""

        def exchange(self, value: Any) -> list[Any]:
            return [value] * size

    world = Several()
    world.size = size

    def told(network: Any, geometry: Any, batch: int, *_: Any, staged: int, states: int) -> None:
        raise AskedError(batch, staged)

    monkeypatch.setattr(construction, "refuse_hopeless", told)
    how = DistributedSection(strategy="tree", shared_memory=False)
    with pytest.raises(AskedError) as found:
        small(batch=12, microbatch=2, ranks=world, distributed=how)
    assert found.value.args == (2, own)


def test_what_is_staged_counts_for_both_steps() -> None:
    with small() as model:
        net, geometry = model.network, model.geometry
        inputs = 4 * model.network.inputs[0].channels * int(np.prod(model.input_shape))
        one, five = (least_bytes(net, geometry, 1, True, staged) for staged in (None, 5))
        assert five - one == 2 * 4 * inputs


def test_the_least_is_counted_by_hand() -> None:
    """A chain of 3 + 2 images: floats of images and of parameters, with gradients and states where they are trained."""
    convs = [
        {"channels": 3, "size": 3, "norm": "batch"},
        {"channels": 2, "size": 1},
        {"channels": 1, "size": 1},
    ]
    net = load_network({"layers": [{"conv": keys} for keys in convs]})
    geometry = fit(net, 4)
    inputs, three, two, output = 6**3, 3 * 64, 2 * 64, 64
    filters, others, running = (
        81 + 6 + 2,
        2 + 1,
        2 * 3,
    )  # weights; biases; running mean and variance
    learned = filters + others + 2 * 3  # and scale and shift of the norm
    assert image_bytes(net, geometry, 5, False) == 4 * 5 * (inputs + three + output)
    assert image_bytes(net, geometry, 5, True, keeps=False) == 4 * 5 * (2 * inputs + three + output)
    kept = 4 * 5 * (2 * inputs + three + two + output)
    assert image_bytes(net, geometry, 5, True) == kept
    assert parameter_bytes(net, False, 2) == 4 * (filters + others)
    assert parameter_bytes(net, True, 2) == 4 * (4 * learned + running)
    assert copied_bytes(net, 2) == 4 * (3 * learned + running)
    assert least_bytes(net, geometry, 5, True, states=2) == kept + 4 * (4 * learned + running)


def test_a_party_counts_the_ranks_of_its_host() -> None:
    class Third:
        """Rank 2 of 4; rank 1 runs elsewhere."""

        rank, size = 2, 4

        def exchange(self, value: Any) -> list[Any]:
            return [value, ["elsewhere", *value[1:]], value, value]

    world: Any = Third()
    how = DistributedSection(strategy="tree", shared_memory=False)
    with small() as model:
        party = Party.of(world, 8, model.network, how, {})
    assert party
    assert party.beside == 3


@pytest.mark.parametrize("microbatch", [2, 1])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_graph_that_is_told_is_the_one_that_runs(threads: int, microbatch: int) -> None:
    """Task by task: simulators take what a task took for the one in its place."""
    layer = {"conv": {"channels": 10, "size": 3, "function": "relu"}}
    net = load_network({"layers": [layer, {"max_filter": 2}, layer, layer, layer]})
    options = {"batch": 2, "microbatch": microbatch, "conv": "direct", "loss": "square"}
    with model_of(net, (12, 12, 12), threads=threads, **options) as model:
        runs, told = model.task_graph, model.task_graph_for(threads)
    assert (told.names, told.kinds) == (runs.names, runs.kinds)
    np.testing.assert_array_equal(told.cost, runs.cost)
    for carried in (False, True):
        for ours, its in zip(told.edges(carried=carried), runs.edges(carried=carried), strict=True):
            np.testing.assert_array_equal(ours, its)


def test_what_is_only_counted_gets_no_argument_words(monkeypatch: pytest.MonkeyPatch) -> None:
    words: list[str] = []
    own = Kernel.arguments

    def noted(kernel: Kernel, **values: float) -> list[int]:
        words.append(kernel.name)
        return own(kernel, **values)

    planning = memory_planning._OneMicrobatch.of

    def planned_without(layout: Any, settings: Any, *, keep: bool = False) -> Any:
        before = len(words)
        found = planning(layout, settings, keep=keep)
        if keep:  # for graphs that are made of them
            return found
        assert len(words) == before
        assert not any(task.arguments for task in found.step)
        return found

    monkeypatch.setattr(Kernel, "arguments", noted)
    monkeypatch.setattr(memory_planning._OneMicrobatch, "of", planned_without)
    with small() as model:
        assert model.task_graph_for(3).size
    assert words
