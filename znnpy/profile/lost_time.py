"""Attributes the workers' time: to tasks, or to causes of idle time (dispatch, stealing, waits, messages, no core)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from znnpy.profile.recorded_updates import Profile
from znnpy.profile.timeline import (
    MESSAGE,
    MISSING,
    Ints,
    Timeline,
    ready_count,
    steps_in_flight,
)
from znnpy.scheduler.recording import SEARCH, WorkerRecording

T = TypeVar("T")
# As `summary.LARGEST`: what is longer counts as too coarse.
COARSE_SECONDS = 2e-3
"""A task longer than this, waited for by idle workers, is blamed on the cut into tasks, not on the graph."""

# 100 microseconds: far above dispatch, tokens and a look at all victims, far below a time slice of the system.
LONGEST_NS = 100_000
"""A worker needs less between two tasks, or to find a ready one: in longer gaps it had no core."""

# In the order in which reports and bars show them.
LOSSES = (
    "dispatch",
    "stealing",
    "waking up",
    "without a core",
    "too few ready tasks",
    "too coarse tasks",
    "messages",
    "data",
)


@dataclass
class Losses:
    """Seconds of one worker's, or all workers', time in the recorded window, by cause.

    `searching` and `parked` divide the same idle time by what the worker did; `waited_for` counts
    the seconds without a ready task by the name of the task that ended the wait. `exposed`: those until
    a message came, by (update, task that it was for).
    """

    busy: float = 0.0
    searching: float = 0.0
    parked: float = 0.0
    causes: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    waited_for: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    exposed: dict[tuple[int, int], float] = field(default_factory=lambda: defaultdict(float))

    def add(self, other: Losses) -> None:
        """Add another worker's seconds."""
        self.busy += other.busy
        self.searching += other.searching
        self.parked += other.parked
        _add(self.causes, other.causes)
        _add(self.waited_for, other.waited_for)
        _add(self.exposed, other.exposed)


def _add(own: dict[T, float], other: Mapping[T, float]) -> None:
    for key, seconds in other.items():
        own[key] += seconds


class _When:
    """The time for which something held between two moments, from a function of time that is 0 or 1."""

    def __init__(self, times: Ints, holds: NDArray[np.bool_]) -> None:
        self._times = times
        spans = np.diff(times) * holds[:-1]
        self._total = np.concatenate([np.zeros(1), np.cumsum(spans)])

    def between(self, low: Ints, high: Ints) -> NDArray[np.float64]:
        """Return the seconds between arrays of moments, within the given times."""
        at = np.interp(np.stack([low, high]), self._times, self._total)
        return np.asarray((at[1] - at[0]) * 1e-9)


def find_losses(profile: Profile) -> list[Losses]:
    """Return the losses of every worker; causes and busy time add up to the length of the window."""
    timeline = profile.timeline
    ready, flying = ready_count(timeline), steps_in_flight(timeline)
    # All moments at which either function changes, within the window: between them both are constant.
    bounds = np.array([profile.start_ns, profile.end_ns])
    times = np.unique(np.concatenate([ready.times, flying.times, bounds]))
    times = times[(times >= bounds[0]) & (times <= bounds[1])]
    starved = ready.at(times) == 0
    # As many updates as may be in flight, or no more to come: then Python owes nothing.
    fed = (flying.at(times) >= timeline.copies) | (times >= timeline.releases[-1])
    when = _When(times, starved), _When(times, starved & ~fed)
    return [_of_worker(profile, timeline, number, *when) for number in range(len(profile.workers))]


def _of_worker(
    profile: Profile, timeline: Timeline, number: int, starved: _When, unfed: _When
) -> Losses:
    recording = profile.workers[number]
    searches = idle_times(recording, profile.start_ns, profile.end_ns)
    low, high = searches["start_ns"], searches["end_ns"]
    slept = np.where(searches["park_ns"] > 0, searches["park_ns"], high)
    events = recording.events
    found = Losses(busy=_seconds(events["end_ns"] - events["start_ns"]))
    found.searching, found.parked = _seconds(slept - low), _seconds(high - slept)
    window = (profile.end_ns - profile.start_ns) * 1e-9
    # What is neither busy nor idle in the recording lies between tasks: dispatch, tokens, reading the clock.
    outside = max(0.0, window - found.busy - found.searching - found.parked)
    none_ready = starved.between(low, high)
    # Of the search, the time in which something was ready.
    spent = (slept - low) * 1e-9 - starved.between(low, slept)
    # Longer than a search can take: no core.
    away = np.maximum(spent - LONGEST_NS * 1e-9, 0.0)
    between = min(outside, _long_gaps(events, searches))
    found.causes["without a core"] = float(away.sum()) + between
    found.causes["dispatch"] = outside - between
    found.causes["stealing"] = float((spent - away).sum())
    # Asleep although something was ready.
    found.causes["waking up"] = found.parked - float(starved.between(slept, high).sum())
    data = unfed.between(low, high)
    found.causes["data"] = float(data.sum())
    # First data, then messages, what is left is the graph's: each second has one cause.
    lost = none_ready - data
    lost -= _blame_messages(found, timeline, recording, (low, high), starved, lost)
    _blame(found, timeline, recording, high, lost)
    return found


def _long_gaps(events: NDArray[np.void], searches: NDArray[np.void]) -> float:
    """Return the seconds beyond LONGEST_NS between two tasks or searches."""
    starts = np.sort(np.concatenate([events["start_ns"], searches["start_ns"]]))
    # Both sorted by themselves: a worker does one thing at a time, so starts and ends alternate.
    ends = np.sort(np.concatenate([events["end_ns"], searches["end_ns"]]))
    return _seconds(np.maximum(starts[1:] - ends[:-1] - LONGEST_NS, 0))


def idle_times(recording: WorkerRecording, start: int, end: int) -> NDArray[np.void]:
    """Return a worker's times without a task between two moments, including one that still lasts."""
    searches = recording.searches
    searches = searches[(searches["end_ns"] > start) & (searches["start_ns"] < end)].copy()
    last = max(
        start,
        int(recording.events["end_ns"].max(initial=0)),
        int(searches["end_ns"].max(initial=0)),
    )
    if last < end:
        # A sleep that still lasts is not recorded yet.
        searches = np.append(searches, np.array([(last, last, end, 0)], SEARCH))
    asleep = searches["park_ns"] > 0
    searches["park_ns"][asleep] = searches["park_ns"][asleep].clip(start, end)
    for word in ("start_ns", "end_ns"):
        searches[word] = searches[word].clip(start, end)
    return searches


def _blame_messages(
    found: Losses,
    timeline: Timeline,
    recording: WorkerRecording,
    waits: tuple[Ints, Ints],
    starved: _When,
    seconds: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return, of each wait's seconds without a ready task, those until a message came that the next task needed."""
    exposed = np.zeros(len(seconds))
    if not (timeline.waited_for == MESSAGE).any():
        return exposed
    begins, ends = waits
    place = np.searchsorted(recording.events["start_ns"], ends)
    for wait in np.flatnonzero((seconds > 0) & (place < len(recording.events))).tolist():
        event, low = recording.events[place[wait]], int(begins[wait])
        (round_,) = np.flatnonzero(timeline.start[:, event["task"]] == event["start_ns"])[:1]
        came = _message_before(timeline, int(round_), int(event["task"]), low)
        if came is None:
            continue
        # From when the message's own predecessors were done: before that it was not the message that was
        # missing.
        since, until = np.clip([timeline.made[came], timeline.ready[came]], low, ends[wait])
        exposed[wait] = min(seconds[wait], float(starved.between(since, until)))
        found.exposed[timeline.update(*came), came[1]] += float(exposed[wait])
    found.causes["messages"] = float(exposed.sum())
    return exposed


def _message_before(timeline: Timeline, round_: int, task: int, low: int) -> tuple[int, int] | None:
    """Return (round, task) of the last message after `low` that a task waited for, through others or itself."""
    # Back along the tasks that ended last, until a message, a release, or before the wait.
    while True:
        before = int(timeline.waited_for[round_, task])
        if before == MESSAGE:
            return (round_, task) if timeline.ready[round_, task] > low else None
        if before == MISSING:
            return None
        round_ = _round_of(timeline, before, round_, task)
        task = before
        if timeline.start[round_, task] <= low:
            return None


def _round_of(timeline: Timeline, before: int, round_: int, task: int) -> int:
    """Return the round in which a task's predecessor ran: the same, or the one before."""
    end = timeline.end[round_, before]
    # An end that lies after the start belongs to the next round.
    return round_ - 1 if end == MISSING or end > timeline.start[round_, task] else round_


def _blame(
    found: Losses,
    timeline: Timeline,
    recording: WorkerRecording,
    ends: Ints,
    seconds: NDArray[np.float64],
) -> None:
    """Attribute seconds without a ready task to the task that made ready what the worker ran next."""
    place = np.searchsorted(recording.events["start_ns"], ends)
    starts = recording.events["start_ns"]
    for index, lost in zip(place.tolist(), seconds.tolist(), strict=True):
        if lost <= 0:
            continue
        name, coarse = "the end of the recording", False
        if index < len(starts):
            name, coarse = _awaited(timeline, int(recording.events["task"][index]), starts[index])
        found.causes["too coarse tasks" if coarse else "too few ready tasks"] += lost
        found.waited_for[name] += lost


def _awaited(timeline: Timeline, task: int, start: int) -> tuple[str, bool]:
    (round_,) = np.flatnonzero(timeline.start[:, task] == start)[:1]
    before = int(timeline.waited_for[round_, task])
    if before == MISSING:
        return "the release of an update", False
    if before == MESSAGE:
        return f"the message for {timeline.graph.names[task]}", False
    run = _round_of(timeline, before, int(round_), task)
    length = timeline.end[run, before] - timeline.start[run, before]
    # The task that was waited for, not the one that waited.
    return timeline.graph.names[before], bool(length * 1e-9 > COARSE_SECONDS)


def _seconds(nanoseconds: Ints) -> float:
    return float(nanoseconds.sum()) * 1e-9
