"""The simulator against makespans known by hand, Brent's bounds, and the protocol it copies."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shares import examples
from simulated_graphs import build, random_graph

from znnpy.graph import GraphError, Named
from znnpy.simulate import IDEAL, Machine, Replay, simulate


def seconds(graph, workers, machine=IDEAL, steps=1, **options):
    return simulate(Replay.of(graph), workers, machine, steps, **options).seconds


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_a_chain_takes_its_length(workers):
    graph = build([1.0, 2.0, 3.0], [(0, 1), (1, 2)])
    assert seconds(graph, workers) == pytest.approx(6.0)


@pytest.mark.parametrize(
    ("workers", "expected"), [(1, 12.0), (2, 6.0), (4, 3.0), (5, 3.0), (12, 1)]
)
def test_a_fan_of_equal_tasks(workers, expected):
    assert seconds(build([1.0] * 12, []), workers) == pytest.approx(expected)


def test_two_branches_on_two_workers():
    graph = build([1.0, 5.0, 2.0, 2.0, 1.0], [(0, 1), (0, 2), (2, 3), (1, 4), (3, 4)])
    assert seconds(graph, 1) == pytest.approx(11.0)
    assert seconds(graph, 2) == pytest.approx(7.0)


def test_one_worker_takes_all_tasks_and_their_dispatch():
    graph = random_graph(3, 50)
    machine = replace(IDEAL, dispatch=1e-5, successor=1e-6)
    expected = graph.work + 50 * 1e-5 + len(graph.successors) * 1e-6
    assert seconds(graph, 1, machine) == pytest.approx(expected)


def test_a_steal_is_paid_by_the_thief():
    graph = build([1.0, 4.0, 4.0], [(0, 1), (0, 2)])
    machine = replace(IDEAL, steal=0.5)
    # The injector is a victim like any other: the first task is stolen too.
    assert seconds(graph, 2, machine) == pytest.approx(0.5 + 1 + 4.5)


def test_a_parked_worker_comes_late():
    graph = build([1.0, 4.0, 4.0], [(0, 1), (0, 2)])
    machine = replace(IDEAL, spin=0.25, wake=0.5)
    assert seconds(graph, 2, machine) == pytest.approx(1 + 0.5 + 4)
    assert seconds(graph, 2, replace(machine, spin=2.0)) == pytest.approx(1 + 4)


def test_crowded_memory_slows_its_share():
    replay = Replay.of(build([1.0] * 4, []), shares=np.full(4, 0.5))
    machine = replace(IDEAL, bandwidth=1.0)
    # Half of each task takes four times as long beside three others.
    assert simulate(replay, 4, machine, 1).seconds == pytest.approx(2.5)
    assert simulate(replay, 1, machine, 1).seconds == pytest.approx(4.0)


def test_urgent_tasks_go_first():
    costs = [1.0] * 7 + [6.0]
    late = build(costs, [], policy="fifo")
    early = build(costs, [], policy="critical-path")
    assert seconds(late, 2) > seconds(early, 2)
    assert seconds(early, 2) == pytest.approx(7.0)


def test_steps_overlap_and_copies_take_turns():
    graph = build([1.0, 1.0], [(0, 1)], copies=2)
    assert seconds(graph, 1, steps=6) == pytest.approx(12.0)
    assert seconds(graph, 2, steps=6) == pytest.approx(7.0)
    log = simulate(Replay.of(graph), 2, IDEAL, 6, log=100).log
    assert np.bincount(log[:, 0].astype(int)).tolist() == [3, 3, 3, 3]


def test_rows_of_costs_take_turns():
    replay = Replay.of(build([1.0], [], copies=2), np.array([[1.0, 1.0], [5.0, 5.0]]))
    assert simulate(replay, 1, IDEAL, 4).seconds == pytest.approx(12.0)


def test_layers_wait_for_each_other():
    costs, edges = [1.0, 5.0, 5.0, 1.0], [(0, 2), (1, 3)]
    free = build(costs, edges, stages=[0, 0, 1, 1])
    barred = build(costs, edges, stages=[0, 0, 1, 1], policy="layers")
    assert seconds(free, 2) == pytest.approx(6.0)
    assert seconds(barred, 2) == pytest.approx(10.0)


def test_the_same_seed_gives_the_same_bits_and_another_other_steals():
    replay = Replay.of(random_graph(4, 300, copies=2))
    runs = [simulate(replay, 5, Machine(), 4, seed, log=2000) for seed in (1, 1, 2)]
    assert runs[0].seconds == runs[1].seconds
    assert runs[0].log.tobytes() == runs[1].log.tobytes()
    assert runs[0].log.tobytes() != runs[2].log.tobytes()


def test_a_graph_without_progress_is_refused():
    graph = build([1.0, 1.0], [], copies=2)
    graph.initial[0] += 1
    with pytest.raises(GraphError, match="no progress after 0 of 1"):
        seconds(graph, 2)


@examples(150)
@given(st.integers(0, 10_000), st.integers(1, 60), st.integers(1, 40), st.integers(0, 99))
def test_brents_bounds_hold(graph_seed, size, workers, seed):
    replay = Replay.of(random_graph(graph_seed, size))
    work, span = replay.work(1), replay.span()
    ideal = simulate(replay, workers, IDEAL, 1, seed).seconds
    rounding = 1 + 1e-9
    assert max(work / workers, span) <= ideal * rounding
    assert ideal <= (work + (workers - 1) * span) / workers * rounding
    machine = replace(IDEAL, dispatch=1e-6, successor=1e-7, steal=5e-6)
    loaded = replay.loaded(machine)
    real = simulate(replay, workers, machine, 1, seed).seconds
    assert work / workers <= real * rounding
    assert real <= (loaded.work(1) / workers + loaded.span()) * rounding


@examples(50)
@given(st.integers(0, 10_000), st.integers(2, 40), st.integers(1, 9))
def test_no_task_starts_before_its_predecessors_have_ended(graph_seed, size, workers):
    graph = random_graph(graph_seed, size, copies=2)
    steps = 6
    log = simulate(Replay.of(graph), workers, Machine(), steps, log=size * steps).log
    task, worker, start = log[:, 0].astype(int), log[:, 1].astype(int), log[:, 2]
    assert np.bincount(task, minlength=graph.size).tolist() == [steps // 2] * graph.size
    rows = np.zeros((steps // 2, graph.size))
    for number in range(graph.size):
        rows[:, number] = start[task == number]
    ends = rows + graph.cost
    for carried in (False, True):
        before, after = graph.edges(carried=carried)
        later, earlier = (rows[1:], ends[:-1]) if carried else (rows, ends)
        assert (later[:, after] >= earlier[:, before] - 1e-12).all()
    for own in range(workers):
        mine = np.flatnonzero(worker == own)
        assert (np.diff(start[mine]) >= graph.cost[task[mine][:-1]] - 1e-12).all()


def test_an_ideal_machine_never_waits():
    assert math.isinf(IDEAL.spin)
    assert math.isinf(IDEAL.bandwidth)


def test_costs_fit_graphs_with_other_gates():
    graph = build([1.0, 2.0], [(0, 1)])
    task, gate = Named("task"), Named("gate", "gate", waits=True)
    gated = replace(build([1.0, 9.0, 2.0], [(0, 1), (1, 2)]), tasks=(task, gate, task))
    costs = np.array([[3.0, 4.0]])
    for each in (graph, gated):
        assert simulate(Replay.of(each, costs), 1, IDEAL, 1).seconds == pytest.approx(7.0)
