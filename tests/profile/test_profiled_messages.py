"""Messages of ranks in a profile: what workers waited for, and where it is shown."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from launched import launched
from recorded import recorded
from written_events import MS, worker

from znnpy.graph import GraphBuilder, Named, TaskGraph
from znnpy.network import load_network
from znnpy.profile.lost_time import find_losses
from znnpy.profile.messages import Passed, arrivals, lanes
from znnpy.profile.recorded_updates import Profile
from znnpy.profile.summary import summarise
from znnpy.profile.timeline import MESSAGE
from znnpy.profile.trace import write_trace


def passed(
    posted: float, started: float, arrived: float, phase: int = 2, way: str = "receive"
) -> Passed:
    """A message of 4 bytes; times in ms."""
    times = (int(time * MS) for time in (posted, started, arrived))
    return Passed("conv1", way, 1, 4, phase, *times)


def awaiting_graph() -> TaskGraph:
    """a; b after a and a message; c after b."""
    builder = GraphBuilder()
    a = builder.task(0, [], Named("a"), cost=1.0, phase=0, group=0)
    b = builder.task(0, [], Named("b"), cost=1.0, phase=2, group=0)
    c = builder.task(0, [], Named("c"), cost=1.0, group=0)
    builder.precede(a, b)
    builder.precede(b, c)
    return builder.build()


def waiting(arrived: float) -> Profile:
    """Times in ms: a 1-4, b 7-9 on one worker; c 9-10 on another, that does nothing before."""
    first = worker([(0, 1, 4, 2), (1, 7, 9, 2)], [(4, 0, 7), (9, 0, 10)])
    second = worker([(2, 9, 10, 1)], [(1, 0, 9)])
    network = load_network({"input": 1, "layers": [{"conv": {"channels": 1, "size": 1}}]})
    return Profile(
        awaiting_graph(),
        network,
        [first, second],
        1,
        1 * MS,
        10 * MS,
        [1 * MS],
        [(0, 0)],
        0,
        messages=[passed(2, 2, arrived)],
    )


def test_a_wait_is_the_messages_until_it_comes_and_then_its_tasks() -> None:
    profile = waiting(6.5)
    assert profile.timeline.waited_for[0, 1] == MESSAGE
    first, second = find_losses(profile)
    assert first.causes["messages"] == pytest.approx(2.5e-3)
    assert second.causes["messages"] == pytest.approx(2.5e-3)  # not while a ran, from 1 to 4
    assert first.exposed == {(0, 1): pytest.approx(2.5e-3)}
    for found in (first, second):
        assert found.busy + sum(found.causes.values()) == pytest.approx(9e-3)


def test_a_message_that_was_there_in_time_is_not_waited_for() -> None:
    profile = waiting(3.5)
    assert profile.timeline.waited_for[0, 1] == 0
    assert all(found.causes["messages"] == 0 for found in find_losses(profile))


def test_arrivals_by_phase_are_in_the_order_of_rounds() -> None:
    messages = [passed(5, 6, 9, 3), passed(1, 2, 8, 2), passed(0, 0, 4, 3)]
    assert arrivals(messages) == {3: [4 * MS, 9 * MS], 2: [8 * MS]}


def test_messages_in_one_lane_follow_each_other() -> None:
    messages = [
        passed(0, start, start + length) for start, length in ((0, 5), (1, 1), (2, 9), (5, 1))
    ]
    rows = lanes(messages)
    assert [len(row) for row in rows] == [2, 2]
    for row in rows:
        assert all(one.arrived <= other.started for one, other in pairwise(row))


def communicating() -> Profile:
    """A recorded profile, with messages that nobody sent: at each moment of it one is under way."""
    profile = recorded(2)
    length = (profile.end_ns - profile.start_ns) / MS
    start = profile.start_ns / MS
    ways = "send", "receive", "sum"
    messages = [
        passed(start + at, start + at + length / 99, start + at + length / 8, 2 + n, ways[n % 3])
        for n, at in enumerate([length * k / 9 for k in range(9)])
    ]
    return replace(profile, messages=messages)


def test_the_trace_has_tracks_of_messages(tmp_path: Path) -> None:
    profile = communicating()
    write_trace(profile, tmp_path / "t.gz")
    with gzip.open(tmp_path / "t.gz", "rt") as file:
        events = json.load(file)["traceEvents"]
    tracks = defaultdict(list)
    for event in events:
        if event.get("cat") == "message":
            tracks[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
            assert event["args"]["bytes"] == 4
    assert tracks
    assert min(tracks) >= len(profile.workers)
    named = {event["tid"] for event in events if event.get("args") == {"name": "messages"}}
    assert named == set(tracks)
    for slices in tracks.values():
        assert all(one[1] <= other[0] + 1e-6 for one, other in pairwise(sorted(slices)))


def test_the_trace_has_messages_that_go_beyond_the_updates_it_shows(tmp_path: Path) -> None:
    profile = recorded(2)
    length = (profile.end_ns - profile.start_ns) / MS
    start = profile.start_ns / MS
    whole = replace(profile, messages=[passed(start, start, start + length)])
    write_trace(whole, tmp_path / "t.gz")
    with gzip.open(tmp_path / "t.gz", "rt") as file:
        events = json.load(file)["traceEvents"]
    assert [event["name"] for event in events if event.get("cat") == "message"] == ["receive conv1"]


def test_the_summary_counts_what_was_sent() -> None:
    assert summarise(recorded(2))["messages"] is None
    assert "messages" not in summarise(recorded(2))["losses"]
    profile = communicating()
    run = summarise(profile)
    found = run["messages"]
    assert found["bytes"] == {way: pytest.approx(12 / 5) for way in ("receive", "send", "sum")}
    assert found["count"] == pytest.approx(9 / 5)
    assert 0 < found["under_way"] <= run["seconds"] * 1.1
    assert len(found["by_update"]) == profile.updates
    assert found["exposed"] == pytest.approx(sum(found["by_layer"].values()))


CONFIG = """
network:
  layers:
    - conv: {channels: 24, size: 3, function: relu}
    - conv: {channels: 24, size: 3, function: relu}
    - conv: {channels: 3, size: 3}
data: {train: [{image: none.h5:raw, labels: none.h5:labels}]}
training: {iterations: 1, output_shape: 6, batch: 2, conv: direct}
distributed: {strategy: tree, shared_memory: false}
run: {directory: run, threads: 1}
"""


@pytest.fixture(scope="module")
def profiled_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that rank 0 of two leaves."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "config.yaml").write_text(CONFIG)
    script = "import sys; from znnpy.cli import main; main(sys.argv[1:])"
    words = ["profile", folder / "config.yaml", "--updates", "6", "--out", folder / "out"]
    launched(2, script, *words)
    return folder / "out"


@pytest.mark.slow
def test_ranks_record_what_they_sent(profiled_ranks: Path) -> None:
    summary = json.loads((profiled_ranks / "summary.json").read_text())
    (run,) = summary["runs"]
    found = run["messages"]
    learned = 4 * (24 * 27 + 24 + 24 * 24 * 27 + 24 + 24 * 3 * 27 + 3)
    assert summary["world"] == 2
    sent = found["bytes"]["send"]  # filters are padded to lanes, and loss and error go the same way
    assert learned < sent < 3 * learned
    assert found["bytes"] == {"send": sent, "receive": sent}
    assert found["under_way"] > 0
    assert 0 <= found["exposed"] <= run["seconds"]
    assert run["losses"]["messages"] == pytest.approx(found["exposed"])
    total = sum(run["losses"].values())
    assert total == pytest.approx(run["seconds"], rel=0.02)


@pytest.mark.slow
def test_ranks_show_messages_in_trace_and_report(profiled_ranks: Path) -> None:
    with gzip.open(profiled_ranks / "trace.json.gz", "rt") as file:
        events = json.load(file)["traceEvents"]
    shown = {event["name"] for event in events if event.get("cat") == "message"}
    assert any(name.startswith("receive") for name in shown)
    text = (profiled_ranks / "report.html").read_text()
    assert 'id="messages"' in text
    assert "Messages of rank 0" in text
