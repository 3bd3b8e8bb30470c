"""What is read from recordings, against recordings made by hand."""

from dataclasses import replace

import numpy as np
import pytest
from simulated_graphs import build, random_graph
from simulated_recordings import recorded

from znnpy.graph import POLICIES, Named
from znnpy.simulate import (
    IDEAL,
    Machine,
    Replay,
    compare_policies,
    grain,
    simulate,
    simulate_profile,
)
from znnpy.simulate.measured_costs import (
    calibrated,
    measured_machine,
    memory_shares,
    run_costs,
    slow_down,
)


def test_costs_come_back_run_by_run():
    graph = random_graph(5, 40, copies=2)
    costs = run_costs(recorded(graph, 3, IDEAL, 6))
    assert costs.shape == (3, graph.size)
    np.testing.assert_allclose(costs, np.tile(graph.cost, (3, 1)), atol=2e-9)


def test_an_interruption_is_cut_and_a_missing_run_gets_the_median():
    graph = build([1e-3, 1e-3], [], copies=1)
    measured = recorded(graph, 1, IDEAL, 5)
    events = measured.events[0]
    first = np.flatnonzero(events["task"] == 0)
    events["end_ns"][first[2]] += 50_000_000
    without = events[np.arange(len(events)) != np.flatnonzero(events["task"] == 1)[-1]]
    costs = run_costs(replace(measured, events=[without]))
    np.testing.assert_allclose(costs[:, 0], [1e-3, 1e-3, 3e-3, 1e-3, 1e-3])
    np.testing.assert_allclose(costs[:, 1], 1e-3)


def test_dispatch_is_the_time_between_tasks_at_hand():
    graph = build([1e-5] * 40, [(task, task + 1) for task in range(39)])
    measured = recorded(graph, 1, replace(IDEAL, dispatch=5e-7), 3)
    machine = measured_machine(measured)
    assert machine.dispatch == pytest.approx(5e-7 - machine.successor, abs=2e-9)


def test_a_steal_is_the_time_from_ready_and_free_to_the_start():
    graph = build([1e-5] * 60, [(0, task) for task in range(1, 60)])
    measured = recorded(graph, 2, IDEAL, 2)
    for events in measured.events:
        events["stolen"] = 1
    thief = measured.events[0]
    thief["start_ns"] += 400
    machine = measured_machine(replace(measured, events=[thief, measured.events[1][:0]]))
    assert machine.steal == pytest.approx(4e-7, abs=2e-8)


def test_what_was_seen_too_rarely_is_as_usual():
    graph = build([1e-5] * 10, [(task, task + 1) for task in range(9)])
    machine = measured_machine(recorded(graph, 1, replace(IDEAL, dispatch=5e-6), 1))
    assert (machine.dispatch, machine.steal) == (Machine().dispatch, Machine().steal)


def test_steals_are_those_of_the_most_workers():
    graph = build([1e-5] * 60, [(0, task) for task in range(1, 60)])
    measured = {1: recorded(graph, 1, IDEAL, 2), 3: recorded(graph, 3, IDEAL, 2)}
    for events in measured[3].events:
        events["stolen"] = 1
        events["start_ns"] += 700
    assert calibrated(measured).machine.steal == pytest.approx(7e-7, abs=2e-8)


def of_kinds(kinds):
    """A graph of tasks of these kinds that wait for nothing."""
    graph = build([1.0] * len(kinds), [])
    return replace(graph, tasks=tuple(Named("task", kind) for kind in kinds))


def test_memory_shares_follow_from_the_slow_down():
    graph = of_kinds(["copy", "sum", "direct"])
    alone = np.ones(3)
    times = slow_down(graph, alone, np.array([1.5, 1.25, 0.9]))
    np.testing.assert_allclose(times, [1.5, 1.25, 0.9])
    np.testing.assert_allclose(memory_shares(times)[0], [1.0, 0.5, 0.0])
    assert memory_shares(np.ones(3))[1] == np.inf


def test_kinds_with_too_little_time_to_tell_take_as_long():
    times = slow_down(of_kinds(["direct", "sum"]), np.array([1.0, 5e-3]), np.array([1.2, 2e-2]))
    assert times.tolist() == [1.2, 1.0]


def test_only_kinds_that_two_caches_speed_up_take_other_times_on_more_workers():
    """What slows others down is memory, which the machine divides among those who need it."""
    graph = of_kinds(["direct"] * 50 + ["copy"] * 50)
    alone, two = recorded(graph, 1, IDEAL, 3), recorded(graph, 2, IDEAL, 3)
    for events in two.events:
        length = events["end_ns"] - events["start_ns"]
        events["end_ns"] = events["start_ns"] + np.where(events["task"] < 50, 0.8, 1.5) * length
    known = calibrated({1: alone, 2: two})
    np.testing.assert_allclose(known.replay(graph, 1).costs, 1.0)
    np.testing.assert_allclose(known.replay(graph, 2).costs[:, :50], 0.8)
    np.testing.assert_allclose(known.replay(graph, 2).costs[:, 50:], 1.0)
    assert known.machine.bandwidth == pytest.approx(2.0)


def test_more_workers_than_were_measured_have_the_graph_that_is_declared_for_them():
    chain, apart = build([1e-3] * 8, [(task, task + 1) for task in range(7)]), build([1e-3] * 8, [])
    measured = {1: recorded(chain, 1, IDEAL, 4)}
    for wide, last in ((None, 8e-3), (apart, 1e-3)):
        seconds = simulate_profile(measured, wide, workers=(1, 8))["simulation"]["seconds"]
        assert seconds == pytest.approx([8e-3, last], rel=0.01)


def test_the_simulated_slow_down_of_two_workers_is_the_measured_one():
    kinds = np.random.default_rng(0).choice(["copy", "sum"], 400)
    graph = of_kinds(kinds.tolist())
    alone, two = np.ones(400), np.where(kinds == "copy", 1.5, 1.1)
    shares, bandwidth = memory_shares(slow_down(graph, alone, two))
    machine = replace(IDEAL, bandwidth=bandwidth)
    found = simulate(Replay.of(graph, shares=shares), 2, machine, 1).seconds
    assert found == pytest.approx(two.sum() / 2, rel=0.01)


def test_the_caller_takes_a_core_where_workers_have_all_of_them():
    graph = random_graph(8, 80, copies=2)
    measured = {1: replace(recorded(graph, 1, IDEAL, 8), caller=graph.cost.sum() / 8, cores=2)}
    seconds = simulate_profile(measured, workers=(1, 2))["simulation"]["seconds"]
    assert seconds[0] == pytest.approx(graph.cost.sum() / 2, rel=0.01)
    assert seconds[1] == pytest.approx(graph.cost.sum() * 5 / 16, rel=0.1)


def test_no_number_of_workers_is_faster_than_who_hands_updates_over():
    """Or many of them would bring what they cannot, from a small network whose updates Python begins one by one."""
    graph = random_graph(8, 80, copies=2)
    measured = {1: replace(recorded(graph, 1, IDEAL, 8), caller=graph.cost.sum() / 3, cores=64)}
    found = simulate_profile(measured, workers=(1, 2, 8, 64))["simulation"]
    caller = graph.cost.sum() / 3
    assert found["seconds"][0] == pytest.approx(graph.cost.sum() / 2, rel=0.01)
    assert found["seconds"][1:] == pytest.approx([caller] * 3, rel=0.1)
    assert min(found["seconds"] + found["brent_upper"] + found["unlimited"]) >= caller
    for row in compare_policies(measured, workers=(64,)):
        assert row["simulated"]["64"] >= caller


def test_a_simulated_profile_predicts_itself():
    graph = random_graph(8, 80, copies=2)
    machine = replace(IDEAL, dispatch=1e-7, steal=1e-6)
    measured = {p: recorded(graph, p, machine, 8) for p in (1, 2)}
    found = simulate_profile(measured, workers=(1, 2, 4, 8))
    simulation = found["simulation"]
    assert set(simulation["error"]) == {"1", "2"}
    assert all(abs(error) < 0.02 for error in simulation["error"].values())
    columns = ("brent_lower", "seconds", "brent_upper")
    for low, middle, high in zip(*(simulation[c] for c in columns), strict=True):
        assert low <= middle <= high
    assert found == simulate_profile(measured, workers=(1, 2, 4, 8))
    with pytest.raises(ValueError, match="nothing was measured"):
        simulate_profile({})


def test_policies_are_compared_on_the_same_costs():
    graph = random_graph(8, 60, copies=2)
    measured = {1: recorded(graph, 1, IDEAL, 4)}
    rows = compare_policies(measured, workers=(1, 4))
    assert [row["name"] for row in rows] == list(POLICIES)
    assert {row["measured_seconds"] for row in rows} == {None}
    (fifo,) = compare_policies(measured, None, {"fifo": 0.25}, workers=(1, 4))
    assert (fifo["name"], fifo["measured_seconds"]) == ("fifo", 0.25)
    assert fifo["simulated"] == rows[2]["simulated"]
    alone = [row["simulated"]["1"] for row in rows]
    np.testing.assert_allclose(alone, alone[0], rtol=0.01)


def test_grain_of_a_graph_known_by_hand():
    graph = build([1e-3] * 9, [(0, 1), (1, 2)])
    machine = replace(IDEAL, dispatch=1e-6, steal=2e-6)
    found = grain(Replay.of(graph), machine, workers=2)
    assert (found["tasks"], found["workers"], found["enough_for"]) == (9, 2, 0)
    assert found["parallelism"] == pytest.approx(3.0)
    assert found["overhead"] == pytest.approx(2e-3)
    assert [name for name, _ in found["critical"]] == ["0.0", "0.1", "0.2"]
