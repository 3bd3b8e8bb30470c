"""Writes recorded updates as a Chrome trace (JSON) for Perfetto: a track a worker, then messages, then counters."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from znnpy.profile.lost_time import idle_times
from znnpy.profile.messages import lanes
from znnpy.profile.recorded_updates import Profile
from znnpy.profile.timeline import MISSING, Ints, ready_count

UPDATES = 3
"""Updates that a trace holds: enough to see how they overlap, few enough to open fast."""
ANOTHER_WORKER = 1  # in an event's `stolen`: the task came from another worker's deque
Event = dict[str, Any]


def write_trace(profile: Profile, path: Path, *, arrows: bool = False) -> None:
    """Write a gzipped trace of the middle updates.

    Times are in microseconds from the first update. Slices are tasks and, between them, sleep;
    instants are steals, counters the ready tasks and the memory. `arrows`: from each task to its
    successors.
    """
    trace = {"traceEvents": list(_Trace(profile).events(arrows)), "displayTimeUnit": "ms"}
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=6) as file:
        json.dump(trace, file, separators=(",", ":"))


class _Trace:
    def __init__(self, profile: Profile) -> None:
        self._profile, self._times = profile, profile.timeline
        # The middle ones.
        first = max(0, (profile.updates - UPDATES + 1) // 2)
        self._updates = range(first, min(profile.updates, first + UPDATES))
        times = self._times
        # A round holds `copies` updates: a task's update follows from its step.
        rounds = np.arange(len(times.start))[:, None] * times.copies + profile.graph.step
        self._shown = times.ran & np.isin(rounds, list(self._updates))
        self._low = int(times.start[self._shown].min())
        self._high = int(times.end[self._shown].max())

    def events(self, arrows: bool) -> Iterator[Event]:
        yield {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "znnpy"}}
        for number in range(len(self._profile.workers)):
            yield {
                "ph": "M", "name": "thread_name", "pid": 1, "tid": number,
                "args": {"name": f"worker {number}"},
            }  # fmt: skip
            yield from self._sleep(number)
        for round_, task in np.argwhere(self._shown).tolist():
            yield from self._task(round_, task)
        yield from self._messages()
        yield from self._counters()
        if arrows:
            yield from self._arrows()

    def _at(self, nanoseconds: int) -> float:
        # Chrome's traces count in microseconds.
        return (nanoseconds - self._profile.start_ns) / 1e3

    def _task(self, round_: int, task: int) -> Iterator[Event]:
        times, graph = self._times, self._profile.graph
        start, end = int(times.start[round_, task]), int(times.end[round_, task])
        place = {"pid": 1, "tid": int(times.worker[round_, task]), "ts": self._at(start)}
        yield {
            "ph": "X",
            "name": graph.names[task],
            "cat": graph.kinds[task],
            **place,
            "dur": (end - start) / 1e3,
            "args": {
                "task": task,
                "update": times.update(round_, task),
                "ready_us": (start - int(times.ready[round_, task])) / 1e3,
            },
        }
        if times.stolen[round_, task] == ANOTHER_WORKER:
            yield {"ph": "i", "name": "steal", **place, "s": "t"}

    def _sleep(self, number: int) -> Iterator[Event]:
        for search in idle_times(self._profile.workers[number], self._low, self._high):
            slept, end = int(search["park_ns"]), int(search["end_ns"])
            if slept and end > slept:
                yield {
                    "ph": "X", "name": "parked", "cat": "parked", "pid": 1, "tid": number,
                    "ts": self._at(slept), "dur": (end - slept) / 1e3,
                    "args": {"failed_steals": int(search["failed"])},
                }  # fmt: skip

    def _messages(self) -> Iterator[Event]:
        """Yield messages from when MPI was told of them until it had done them, on tracks of their own."""
        shown = [
            it
            for it in self._profile.messages
            if it.arrived > self._low and it.started < self._high
        ]
        for number, row in enumerate(lanes(shown), start=len(self._profile.workers)):
            yield {
                "ph": "M", "name": "thread_name", "pid": 1, "tid": number,
                "args": {"name": "messages"},
            }  # fmt: skip
            for it in row:
                yield {
                    "ph": "X", "name": f"{it.way} {it.what}", "cat": "message", "pid": 1, "tid": number,
                    "ts": self._at(it.started), "dur": (it.arrived - it.started) / 1e3,
                    "args": {
                        "bytes": it.bytes,
                        "peer": it.peer,
                        "posted_us": (it.started - it.posted) / 1e3,
                    },
                }  # fmt: skip

    def _counters(self) -> Iterator[Event]:
        ready = ready_count(self._times)
        inside = (ready.times >= self._low) & (ready.times <= self._high)
        for moment, count in zip(ready.times[inside], ready.values[inside], strict=True):
            yield {
                "ph": "C", "name": "ready tasks", "pid": 1, "ts": self._at(int(moment)),
                "args": {"tasks": int(count)},
            }  # fmt: skip
        for moment, size in self._profile.memory:
            if self._low <= moment <= self._high:
                yield {
                    "ph": "C", "name": "memory", "pid": 1, "ts": self._at(moment),
                    "args": {"MiB": size >> 20},
                }  # fmt: skip

    def _arrows(self) -> Iterator[Event]:
        """Yield flow events: they begin in the slice of a task and end where its successor begins."""
        times, number = self._times, 0
        for carried in (False, True):
            before, after = self._profile.graph.edges(carried=carried)
            for round_ in range(int(carried), len(times.start)):
                earlier = round_ - int(carried)
                # Only between tasks that are drawn: viewers drop arrows to nothing.
                both = self._shown[earlier][before] & self._shown[round_][after]
                for one, other in zip(before[both].tolist(), after[both].tolist(), strict=True):
                    number += 1
                    yield self._flow("s", number, earlier, one, times.end)
                    yield self._flow("f", number, round_, other, times.start)

    def _flow(self, phase: str, number: int, round_: int, task: int, moments: Ints) -> Event:
        times = self._times
        moment = int(moments[round_, task])
        assert moment != MISSING
        if phase == "s":  # inside the slice, so that viewers find the task that it belongs to
            # One nanosecond earlier, but not before the slice.
            moment = max(moment - 1, int(times.start[round_, task]))
        event = {
            "ph": phase, "id": number, "name": "waits for", "cat": "dependency", "pid": 1,
            "tid": int(times.worker[round_, task]), "ts": self._at(moment),
        }  # fmt: skip
        # `bp: e` binds the end to the slice that contains it, not to the next one.
        return event | ({"bp": "e"} if phase == "f" else {})
