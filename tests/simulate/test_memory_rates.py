"""Memory that workers share, ranges of forecasts, and what would help: against times known by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shares import examples
from simulated_graphs import build, random_graph
from simulated_recordings import recorded

from znnpy.graph import Named, Touched
from znnpy.simulate import IDEAL, Figures, Memory, Replay, simulate, simulate_profile, what_if
from znnpy.simulate.replay import working
from znnpy.simulate.what_if import halved


def fan(traffic, memory, workers, costs=None):
    """Seconds of tasks of a second each that wait for nothing and move so many bytes."""
    replay = Replay.of(build(costs or [1.0] * len(traffic), []), traffic=np.array(traffic))
    return simulate(replay, workers, replace(IDEAL, memory=memory), 1)


@pytest.mark.parametrize(
    ("traffic", "memory", "expected"),
    [
        ([1.0] * 4, 4.0, 1.0),  # enough for all
        ([1.0] * 4, 2.0, 2.0),  # half of what they ask for
        ([0.0] * 4, 0.5, 1.0),  # nobody asks
        # 1 a second for the small one; 3 of 6 a second for the large one, until it is alone.
        ([1.0, 6.0], 4.0, 1.0 + 0.5 * 6 / 4),
        # An even part of 2 a second is more than the first two ask for, and the last has 4.
        ([1.0, 1.0, 8.0], 6.0, 1.0 + 4 / 6),
    ],
)
def test_memory_is_shared_by_those_who_ask_for_it(traffic, memory, expected):
    outcome = fan(traffic, memory, len(traffic))
    assert outcome.seconds == pytest.approx(expected)
    # What the tasks took longer than alone, all together.
    assert outcome.waited.max() == pytest.approx(expected - 1.0)


def test_one_worker_waits_for_memory_that_is_slower_than_a_core():
    assert fan([3.0, 1.0], 1.0, 1).seconds == pytest.approx(4.0)


def test_who_asks_for_nothing_is_not_held_up():
    outcome = fan([8.0, 0.0, 0.0], 1.0, 3, [1.0, 3.0, 3.0])
    assert outcome.seconds == pytest.approx(8.0)
    assert outcome.waited.tolist() == pytest.approx([7.0, 0.0, 0.0])


def everything_apart(graph, size):
    """Each task reads and stores a stripe of its own."""
    count = int(working(graph).sum())
    stripes = np.repeat(np.arange(count), 2)
    return Touched(
        np.arange(0, 2 * count + 1, 2), stripes, np.tile([0, 1], count), np.full(count, size)
    )


@examples(25)
@given(st.integers(0, 10_000), st.sampled_from([1e8, 1e10, 1e12]), st.sampled_from([0.0, 1e6]))
def test_the_range_holds_what_is_simulated(seed, bandwidth, cache):
    graph = random_graph(seed, 60, copies=2)
    measured = {1: recorded(graph, 1, IDEAL, 6)}
    memory = Memory(Figures(16, bandwidth, cache, 2), everything_apart(graph, 64e3))
    found = simulate_profile(measured, workers=(1, 2, 4, 8), memory=memory)["simulation"]
    assert found["workers"] == [1, 2, 4, 8, 16]
    for least, time, most in zip(*(found[it] for it in ("least", "seconds", "most")), strict=True):
        assert least * (1 - 1e-9) <= time <= most * (1 + 1e-9)
    if cache == 0:
        # Read, read once more to store to it, and stored.
        moved = 3 * 64e3 * 60
        assert found["bytes"] == pytest.approx([moved] * 5)
        assert min(found["seconds"]) >= moved / bandwidth * (1 - 1e-9)
    assert found["memory"] == {"cores": 16, "bandwidth": bandwidth, "cache": cache, "domains": 2}


def test_more_caches_hold_more():
    """Sixteen stripes: a cache for all of them, one for two; of two such caches a single worker has one."""
    graph = build([1e-3] * 8, [(task, task + 1) for task in range(7)], copies=2)
    measured = {1: recorded(graph, 1, IDEAL, 8)}
    touched = everything_apart(graph, 1e3)
    for domains, cache, expected in ((1, 16e3, 0.0), (1, 2e3, 16e3), (2, 16e3, 16e3)):
        memory = Memory(Figures(2, 1e9, cache, domains), touched)
        found = simulate_profile(measured, workers=(1,), memory=memory)["simulation"]
        assert found["workers"] == [1, 2]
        assert found["bytes"][0] == pytest.approx(expected), (domains, cache)


def test_no_number_of_workers_beats_the_longest_cycle():
    chain = build([1.0, 2.0, 3.0], [(0, 1), (1, 2)], copies=2)
    replay = Replay.of(chain)
    assert replay.span() == pytest.approx(6.0)
    # Each task waits for its like in the step before: two steps of six seconds overlap but for the longest task.
    assert replay.period() == pytest.approx(3.0)
    assert simulate(replay, 8, IDEAL, 200).seconds_per_step == pytest.approx(3.0, rel=0.02)


def test_steps_that_wait_for_each_other_cannot_overlap():
    replay = Replay.of(build([2.0], [], copies=2))
    assert replay.period() == pytest.approx(2.0)
    assert simulate(replay, 8, IDEAL, 200).seconds_per_step == pytest.approx(2.0)


def test_a_single_copy_cannot_overlap():
    assert Replay.of(build([1.0, 2.0], [(0, 1)])).period() == pytest.approx(3.0)


def test_halves_of_a_task_run_side_by_side():
    graph = build([1.0, 4.0, 1.0], [(0, 1), (1, 2)])
    traffic = np.array([1.0, 2.0, 3.0])
    finer = halved(Replay.of(graph, traffic=traffic), np.array([False, True, False]))
    assert finer.traffic.tolist() == [1.0, 1.0, 3.0, 1.0]
    assert simulate(finer, 1, IDEAL, 1).seconds == pytest.approx(6.0)
    assert simulate(finer, 2, IDEAL, 1).seconds == pytest.approx(4.0)


@examples(15)
@given(st.integers(0, 10_000))
def test_halves_keep_the_work_and_shorten_the_path(seed):
    replay = Replay.of(random_graph(seed, 40, copies=2))
    chosen = np.random.default_rng(seed).random(80) < 0.5
    finer = halved(replay, chosen)
    assert finer.graph.size == 80 + chosen.sum()
    assert finer.work(4) == pytest.approx(replay.work(4))
    assert finer.span() <= replay.span() * (1 + 1e-12)
    assert halved(replay, np.ones(80, bool)).span() == pytest.approx(replay.span() / 2)
    assert simulate(finer, 1, IDEAL, 4).seconds == pytest.approx(
        simulate(replay, 1, IDEAL, 4).seconds
    )


def test_what_would_help_is_what_bounds_it():
    """A chain of slow tasks beside many others: only what is on the chain helps many workers."""
    costs = [1e-3] * 10 + [1e-4] * 200
    graph = build(costs, [(task, task + 1) for task in range(9)], copies=2)
    kinds = ["chain"] * 10 + ["fan"] * 200
    graph = replace(graph, tasks=tuple(Named(it, it) for it in kinds * 2))
    replay = Replay.of(graph)
    found = what_if(
        lambda count: replay, lambda count: IDEAL, lambda graph: graph.names, (1, 64), steps=40
    )
    one, many = found["seconds"]
    assert one == pytest.approx(0.03)
    rows = {(row["change"], row["name"]): row["seconds"] for row in found["changes"]}
    assert rows["kind", "fan"] == pytest.approx([0.02, many])
    assert rows["kind", "chain"][1] == pytest.approx(many / 2, rel=0.1)
    # Halves of one task take as long on one worker.
    assert rows["layer", "chain"] == pytest.approx([one, many / 2], rel=0.1)
    assert set(rows) == {("kind", "fan"), ("kind", "chain"), ("layer", "chain")}
