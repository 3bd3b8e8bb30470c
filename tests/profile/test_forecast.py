"""Another machine: its figures, what an update moves there, and that everything adds up with the recording."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from recorded import recorded, small_model

from znnpy.errors import PlanError
from znnpy.profile.command import _figures
from znnpy.profile.machine import STREAM_BYTES, OtherMachine, stream_rate
from znnpy.profile.roofline import roofline
from znnpy.profile.simulation import (
    count_memory,
    memory_of,
    rows_of,
    simulate_changes,
    simulate_runs,
)
from znnpy.profile.summary import summarise
from znnpy.simulate import Figures

HERE = {"cores": 4, "memory_bandwidth": 2e10, "caches": [2**24, 2**24]}


@pytest.fixture(scope="module")
def made():
    """A recording on one thread, of tasks that take 10 us each whatever else runs here, and its model."""
    with small_model(1) as model:
        profile = recorded(1)
    (worker,) = profile.workers
    events = worker.events.copy()
    events["start_ns"] = profile.start_ns + 11_000 * np.arange(len(events))
    events["end_ns"] = events["start_ns"] + 10_000
    return {1: (replace(profile, workers=[replace(worker, events=events)]), model)}


def test_what_is_not_said_of_a_machine_is_in_proportion_to_its_cores():
    assert OtherMachine().figures(HERE) == Figures(4, 2e10, 2.0**25, 2)
    assert OtherMachine(cores=64).figures(HERE) == Figures(64, 3.2e11, 2.0**29, 32)
    said = OtherMachine(64, 3e11, 2**28, 8)
    assert said.figures(HERE) == Figures(64, 3e11, 2.0**28, 8)
    assert said.figures(HERE | {"caches": []}) == said.figures(HERE)


@pytest.mark.parametrize(
    ("machine", "here", "words"),
    [
        (OtherMachine(cores=4, domains=8), HERE, "--domains 8: there are only 4 cores"),
        (OtherMachine(cores=4), HERE | {"caches": []}, "give --l3 and --domains"),
    ],
)
def test_machines_that_cannot_be_are_refused(machine, here, words):
    with pytest.raises(PlanError, match=words):
        machine.figures(here)


def test_memory_has_a_rate(monkeypatch):
    """The better of two looks counts, by a clock that is given: of three arrays 4 * 4 bytes a number move in 1 s."""
    moments = iter([0.0, 2.0, 3.0, 4.0])
    clock = SimpleNamespace(perf_counter=lambda: next(moments))
    monkeypatch.setattr("znnpy.profile.machine.time", clock)
    assert stream_rate(1, repeats=2) == 16.0 * (STREAM_BYTES // (3 * 4))


def test_a_machine_is_predicted_by_its_memory(made):
    fast = memory_of(made, Figures(16, 1e15, 2.0**40, 2))
    slow = memory_of(made, Figures(16, 1e6, 0.0, 2))
    free, held = (simulate_runs(made, memory)["simulation"] for memory in (fast, slow))
    assert free["workers"][-1] == held["workers"][-1] == 16
    assert free["bytes"][-1] == 0.0
    assert free["waits"][-1] == {}
    # Without caches all that tasks touch moves.
    assert held["bytes"] == pytest.approx([slow.touched.bytes().sum() / 2] * len(held["bytes"]))
    assert held["seconds"][-1] == pytest.approx(held["bytes"][-1] / 1e6, rel=0.2)
    for simulation in (free, held):
        for row in rows_of(simulation):
            assert row["least"] <= row["seconds"] * (1 + 1e-9)
            assert row["seconds"] <= row["most"] * (1 + 1e-9)
    assert rows_of(held)[0]["waiting"] > 0.5
    json.dumps(held)


def test_what_would_help_begins_with_the_table(made):
    memory = memory_of(made, Figures(16, 1e9, 0.0, 2))
    changes, simulation = simulate_changes(made, memory), simulate_runs(made, memory)["simulation"]
    assert changes["workers"] == [16]
    assert changes["seconds"] == [simulation["seconds"][-1]]
    assert {row["change"] for row in changes["changes"]} == {"kind", "layer"}
    assert simulate_changes(made)["workers"] == [16, 64]


def test_a_roofline_has_all_kinds_and_both_limits(made):
    run = summarise(made[1][0])
    memory = memory_of(made, Figures(4, 1e10, 0.0, 1))
    found = roofline(run, count_memory(made, memory), 50.0)
    assert {row["kind"] for row in found["rows"]} == set(run["kinds"]) - {"gate"}
    for row in found["rows"]:
        assert row["by_memory"] == pytest.approx(row["moved"] / 1e10)
        assert row["shared"] == pytest.approx(row["seconds"] / 4)
        assert row["bound"] == ("memory" if row["by_memory"] > row["shared"] else "cores")
    moved = sum(row["moved"] for row in found["rows"])
    assert moved == pytest.approx(simulate_runs(made, memory)["simulation"]["bytes"][-1])
    json.dumps(found)


def test_a_system_that_tells_of_no_caches_has_no_roofline():
    assert _figures(None, HERE | {"caches": []}) is None
    assert _figures(None, HERE) == OtherMachine().figures(HERE)
    # Ranks but the first measure nothing.
    assert _figures(OtherMachine(cores=64), {}) is None
