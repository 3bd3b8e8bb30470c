"""The trace: slices of a worker are disjoint, every task is there once, dependencies hold."""

import gzip
import json
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded import recorded

from znnpy.profile.recorded_updates import Profile
from znnpy.profile.trace import UPDATES, write_trace

Events = list[dict[str, Any]]


def read(path: Path) -> Events:
    with gzip.open(path, "rt") as file:
        return json.load(file)["traceEvents"]


def check_disjoint(events: Events) -> None:
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for slices in tracks.values():
        slices.sort()
        for (_, end), (start, _) in pairwise(slices):
            assert start >= end - 1e-6


def check_tasks(events: Events, profile: Profile) -> None:
    """Every task of the updates shown, once each, after all of its predecessors."""
    tasks = [event for event in events if event["ph"] == "X" and "task" in event["args"]]
    ran = Counter((event["args"]["update"], event["args"]["task"]) for event in tasks)
    copies = profile.timeline.copies
    shown = {update for update, _ in ran}
    assert len(shown) == min(UPDATES, profile.updates)
    wanted = {
        (update, task)
        for update in shown
        for task in np.flatnonzero(profile.graph.step == update % copies).tolist()
    }
    assert ran == Counter(wanted)
    spans = {
        (event["args"]["update"] // copies, event["args"]["task"]): (
            event["ts"],
            event["ts"] + event["dur"],
        )
        for event in tasks
    }
    met = 0
    for carried in (False, True):
        for before, after in zip(*profile.graph.edges(carried=carried), strict=True):
            for round_, task in spans:
                if task == after and (round_ - carried, before) in spans:
                    assert spans[round_ - carried, before][1] <= spans[round_, task][0] + 1e-6
                    met += 1
    assert met > 0


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_trace_of_updates(tmp_path: Path, threads: int) -> None:
    profile = recorded(threads)
    write_trace(profile, tmp_path / "t.gz")
    events = read(tmp_path / "t.gz")
    check_disjoint(events)
    check_tasks(events, profile)
    assert {event["tid"] for event in events if event["ph"] == "X"} <= set(range(threads))
    assert any(event["name"] == "ready tasks" for event in events)


def test_trace_of_forward_passes(tmp_path: Path) -> None:
    profile = recorded(2, 4, training=False)
    write_trace(profile, tmp_path / "t.gz")
    events = read(tmp_path / "t.gz")
    check_disjoint(events)
    check_tasks(events, profile)


def test_arrows_lead_from_slice_to_slice(tmp_path: Path) -> None:
    profile = recorded(2)
    write_trace(profile, tmp_path / "t.gz", arrows=True)
    events = read(tmp_path / "t.gz")
    begun = {event["id"]: event for event in events if event["ph"] == "s"}
    ended = {event["id"]: event for event in events if event["ph"] == "f"}
    assert begun.keys() == ended.keys() != set()
    slices = [e for e in events if e["ph"] == "X"]
    for number, event in list(begun.items())[:50]:
        assert event["ts"] <= ended[number]["ts"]
        for flow in (event, ended[number]):
            inside = [
                s
                for s in slices
                if s["tid"] == flow["tid"]
                and s["ts"] - 1e-6 <= flow["ts"] <= s["ts"] + s["dur"] + 1e-6
            ]
            assert inside


def test_the_checks_see_a_broken_trace(tmp_path: Path) -> None:
    profile = recorded(2)
    write_trace(profile, tmp_path / "t.gz")
    events = read(tmp_path / "t.gz")
    late = max((e for e in events if e["ph"] == "X"), key=lambda e: e["ts"])
    late["ts"], late["dur"] = min(e["ts"] for e in events if e["ph"] == "X"), 1e6
    with pytest.raises(AssertionError):
        check_disjoint(events)
    with pytest.raises(AssertionError):
        check_tasks(events, profile)
