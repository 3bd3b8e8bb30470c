"""Times of tasks put together, and lost time, on recordings made by hand."""

from dataclasses import replace

import numpy as np
import pytest
from recorded import recorded
from written_events import MS, worker

from znnpy.graph import GraphBuilder, Named
from znnpy.network import load_network
from znnpy.profile.lost_time import find_losses
from znnpy.profile.recorded_updates import Profile
from znnpy.profile.timeline import MISSING, StepFunction, build_timeline


def chain_graph():
    """a, then b and c; d after both."""
    builder = GraphBuilder()
    a, b, c, d = (
        builder.task(0, [], Named(name), cost=1.0, phase=0 if name == "a" else -1, group=0)
        for name in "abcd"
    )
    for one, other in ((a, b), (a, c), (b, d), (c, d)):
        builder.precede(one, other)
    return builder.build()


def hand_made():
    """Two workers; times in ms: a 1-4, b 4-6 beside c 5-9, d 9-10; the second waits until 5."""
    first = worker([(0, 1, 4, 2), (1, 4, 6, 0), (3, 9, 10, 1)], [(6, 0, 9)])
    second = worker([(2, 5, 9, 1)], [(0, 1, 5)])
    network = load_network({"input": 1, "layers": [{"conv": {"channels": 1, "size": 1}}]})
    return Profile(chain_graph(), network, [first, second], 1, 0, 10 * MS, [1 * MS], [(0, 0)], 0)


def test_ready_times_and_what_was_waited_for():
    profile = hand_made()
    times = profile.timeline
    assert times.ready.tolist() == [[1 * MS, 4 * MS, 4 * MS, 9 * MS]]
    assert times.waited_for.tolist() == [[MISSING, 0, 0, 2]]
    assert times.worker.tolist() == [[0, 0, 1, 0]]


def test_lost_time_of_a_recording_made_by_hand():
    first, second = find_losses(hand_made())
    assert first.busy == pytest.approx(6e-3)
    assert first.searching == pytest.approx(3e-3)
    assert first.causes["too coarse tasks"] == pytest.approx(3e-3)  # c took 4 ms
    assert first.causes["dispatch"] == pytest.approx(1e-3)  # nothing is known about 0 to 1
    assert first.causes["without a core"] == 0
    assert second.parked == pytest.approx(5e-3)  # asleep from 1 to 5, and since 9
    assert second.causes["waking up"] == pytest.approx(1e-3)  # c was ready at 4
    assert second.causes["data"] == pytest.approx(1e-3)  # nothing was released before 1
    assert second.waited_for["a"] == pytest.approx(3e-3)
    for found in (first, second):
        assert found.busy + sum(found.causes.values()) == pytest.approx(10e-3)


def test_a_worker_that_does_not_find_a_ready_task_had_no_core():
    profile = hand_made()
    late = worker([(2, 8, 9, 1)], [(0, 1, 5), (5, 0, 8)])  # c was ready all the time from 5 to 8
    first = worker([(0, 1, 4, 2), (1, 4, 6, 0), (3, 9, 10, 1)], [(6, 0, 8.5)])
    moved = replace(profile, workers=[first, late])
    found = find_losses(moved)
    assert found[1].causes["stealing"] == pytest.approx(0.1e-3)
    assert found[1].causes["without a core"] == pytest.approx(2.9e-3)
    assert found[0].causes["without a core"] == pytest.approx(1.9e-3 + 0.4e-3)
    for each in found:
        assert each.busy + sum(each.causes.values()) == pytest.approx(10e-3)


@pytest.mark.parametrize(("length", "blamed"), [(1.9, "graph"), (2.1, "cut")])
def test_only_a_long_task_that_was_waited_for_is_blamed_for_its_length(length, blamed):
    """Nothing was ready while c ran, until 9."""
    late = worker([(2, 9 - length, 9, 1)], [(0, 1, 9 - length)])
    found = find_losses(replace(hand_made(), workers=[hand_made().workers[0], late]))[0].causes
    causes = {"graph": "too few ready tasks", "cut": "too coarse tasks"}
    assert {name: found[cause] for name, cause in causes.items()} == {
        name: pytest.approx(length * 1e-3 * (name == blamed)) for name in causes
    }


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_busy_and_lost_time_fill_the_recording(threads):
    profile = recorded(threads)
    whole = (profile.end_ns - profile.start_ns) * 1e-9
    for found in find_losses(profile):
        assert min(found.causes.values()) >= -1e-9
        assert found.busy + sum(found.causes.values()) == pytest.approx(whole, rel=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_every_task_has_run_and_was_ready_before(training):
    profile = recorded(2, 5, training)
    times = profile.timeline
    steps = np.bincount(profile.graph.step)
    assert times.ran.sum() == 5 * steps[0]
    assert (times.ready <= times.start)[times.ran].all()
    before, after = profile.graph.edges(carried=False)
    both = times.ran[:, before] & times.ran[:, after]
    assert (times.end[:, before] <= times.ready[:, after])[both].all()


def test_step_functions_count_open_intervals():
    count = StepFunction.counting(np.array([1, 2, 5]), np.array([4, 4, 6]))
    assert count.at(np.array([0, 1, 2, 3, 4, 5, 6, 9])).tolist() == [0, 1, 2, 2, 0, 1, 0, 0]


def test_a_timeline_needs_no_stolen_or_missing_rounds():
    profile = recorded(2)
    again = build_timeline(profile.graph, profile.workers[::-1], profile.releases)
    assert (again.start == profile.timeline.start).all()
