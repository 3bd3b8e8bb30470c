"""The numbers of a profile, against sums and paths computed another way; advice; task graph."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import recorded, small_model

from znnpy.profile.advice import _more_workers, advise
from znnpy.profile.graphviz import write_dot
from znnpy.profile.recorded_updates import random_batch
from znnpy.profile.simulation import rows_of
from znnpy.profile.summary import _sizes, step_edges, summarise, typical_costs

SIMULATION = {
    "workers": [1, 2, 3, 8, 16],
    "seconds": [1.0, 0.51, 0.35, 0.24, 0.2],
    "memory": None,
    "waits": [{}] * 5,
}


def slow_longest_path(edges, costs):
    before = {}
    for one, other in zip(*(array.tolist() for array in edges), strict=True):
        before.setdefault(other, []).append(one)
    best = {}

    def until(task):
        if task not in best:
            best[task] = costs[task] + max((until(b) for b in before.get(task, [])), default=0.0)
        return best[task]

    return max(until(task) for task in range(len(costs)))


@pytest.mark.parametrize("training", [True, False])
def test_sums_and_paths(training):
    profile = recorded(2, 5, training)
    found = json.loads(json.dumps(summarise(profile)))
    assert found["tasks"] == profile.tasks_per_update
    assert found["work"] == pytest.approx(sum(entry["seconds"] for entry in found["names"]))
    assert found["work"] == pytest.approx(sum(found["kinds"].values()))
    assert found["span"] == pytest.approx(
        slow_longest_path(step_edges(profile), typical_costs(profile))
    )
    assert sum(entry["tasks"] for entry in found["names"]) == profile.tasks_per_update
    assert sum(worker["tasks"] for worker in found["workers"]) == 5 * profile.tasks_per_update
    assert sum(found["losses"].values()) == pytest.approx(2 * found["seconds"], rel=1e-3)
    assert sum(found["sizes"]["tasks"]) == pytest.approx(profile.tasks_per_update)


def test_advice_names_what_is_wrong():
    found = summarise(recorded(2))
    found.update(work=1.0, span=0.9, disturbance=1.0)
    found["losses"] = dict.fromkeys(found["losses"], 0.0) | {"tasks": 0.5, "data": 0.5}
    text = " ".join(advise(found, {"cores": 2, "sgemm_gflops": 50.0}))
    assert "narrow for 2 workers: T1 / Tinf is 1.1" in text
    assert "waiting for data" in text
    assert "share 1 core:" in advise(found, {"cores": 1, "sgemm_gflops": 50.0})[0]


def test_how_many_workers_are_worth_it_is_said_once():
    found = summarise(recorded(2))
    found.update(work=16.0, span=0.5)
    machine, simulation = {"cores": 2, "sgemm_gflops": 50.0}, SIMULATION
    told = [it for it in advise(found, machine, simulation) if "worker" in it]
    assert told[:2] == [
        "The graph is wide enough for 2 workers: T1 / Tinf is 32, at least four times as many.",
        "By simulation, up to 3 workers would be busy for 90% of the time, 2.9 times as fast as one, and up to 8 for "
        "half of it, 4.2 times as fast. 16 workers would be 5.0 times as fast.",
    ]
    doubted = advise(found, machine, simulation, doubts=["The measurement was disturbed."])
    assert doubted[:2] == ["The measurement was disturbed.", told[0]]
    assert "simulation" not in " ".join(doubted)


@given(st.lists(st.floats(1e-3, 1.0), min_size=1, max_size=8))
def test_advice_never_contradicts_the_table(times):
    """Whatever was simulated: each number that it names is one of the table's, and no row below says otherwise."""
    counts = [1, 2, 3, 4, 8, 16, 64, 256][: len(times)]
    simulation = SIMULATION | {"workers": counts, "seconds": times, "waits": [{}] * len(times)}
    others = {name: [0.0] * len(times) for name in ("least", "most", "bytes")}
    rows = {row["workers"]: row["speed_up"] for row in rows_of(simulation | others)}
    (told,) = _more_workers(simulation)
    named = re.findall(r"(\d+)(?: workers?)? (?:would be busy|for half of it|would be \d)", told)
    busy, half, most = map(int, named)
    gains = re.findall(r"(\d+\.\d) times as fast", told)
    assert gains == [f"{rows[count]:.1f}" for count in (busy, half, most)]
    for limit, share in ((busy, 0.9), (half, 0.5)):
        below = [count for count in counts if 1 < count <= limit]
        assert all(rows[count] >= share * count for count in below)
        beyond = [count for count in counts if count > limit]
        assert not beyond or rows[beyond[0]] < share * beyond[0]


def test_memory_is_named_where_workers_wait_for_it():
    memory = {"cores": 16, "bandwidth": 3e11, "cache": 2**28, "domains": 8}
    waits = [{}] * 4 + [{"transform": 0.5, "pool": 0.2, "sum": 0.1}]
    told = list(_more_workers(SIMULATION | {"memory": memory, "waits": waits}))
    assert told[0].startswith(
        "By simulation of 16 cores with 300 GB/s and 256 MiB of L3 in 8 domains, up to 3 workers"
    )
    assert told[1:] == [
        "16 workers would wait for memory for 25% of their time, in transform and pool tasks first."
    ]


def test_a_task_that_was_interrupted_once_costs_what_it_usually_does():
    profile = recorded(2)
    workers = [replace(it, events=it.events.copy()) for it in profile.workers]
    for worker in workers:  # as quietly as nobody else would let them
        worker.events["end_ns"] = worker.events["start_ns"] + 10_000
    worker = max(workers, key=lambda it: len(it.events))
    worker.events["end_ns"][0] += 50_000_000
    np.testing.assert_allclose(typical_costs(replace(profile, workers=workers)), 1e-5)


def test_tasks_are_small_below_20_microseconds_and_large_above_2_milliseconds():
    found = _sizes(np.array([19e-6, 21e-6, 1.9e-3, 2.1e-3]))
    assert found["small"] * 4.04e-3 == pytest.approx(19e-6)
    assert found["large"] * 4.04e-3 == pytest.approx(2.1e-3)


def test_recording_changes_no_bits():
    parameters = []
    for record in (0, 1000):
        with small_model(2, record=record) as model:
            batch = random_batch(model)
            for _ in range(3):
                model.step(*batch, learning_rate=0.1)
            parameters.append(model.parameters)
    for name, values in parameters[0].items():
        assert (values == parameters[1][name]).all()


def test_dot_groups_and_every_task(tmp_path):
    profile = recorded(2)
    write_dot(profile, tmp_path / "g.dot")
    grouped = (tmp_path / "g.dot").read_text()
    names = {n for n, s in zip(profile.graph.names, profile.graph.step, strict=True) if s == 0}
    assert len(re.findall(r"^  g\d+ \[label", grouped, re.M)) == len(names)
    write_dot(profile, tmp_path / "f.dot", full=True)
    full = (tmp_path / "f.dot").read_text()
    assert len(re.findall(r"^  t\d+ \[label", full, re.M)) == profile.tasks_per_update
    assert full.count("->") == len(step_edges(profile)[0])
    assert np.isfinite(typical_costs(profile)).all()
