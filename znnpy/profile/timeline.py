"""Orders recorded events in one table: when each task of each step was ready, began and ended, and on which worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.graph import TaskGraph
from znnpy.scheduler.recording import WorkerRecording

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
MISSING, MESSAGE = -1, -2  # in place of a task or a time, none of which is negative
Arrivals = Mapping[int, Sequence[int]]
"""By phase: when each of its messages came, one a round."""


@dataclass(frozen=True)
class Timeline:
    """Arrays (round, task), times in ns of the clock of `time.monotonic_ns`; MISSING: did not run.

    A round runs every task of the graph once: with two copies of a step it holds two updates.
    """

    graph: TaskGraph
    copies: int
    start: Ints
    end: Ints
    worker: Ints
    stolen: Ints
    ready: Ints
    """When the last predecessor ended, or the step was released; the start where nothing is known."""
    waited_for: Ints
    """The predecessor that ended last; MISSING where the release came last, MESSAGE where a message did."""
    made: Ints
    """When the last predecessor ended, whatever else the task waited for; 0 where none is known."""
    releases: Ints
    """When each update or forward pass was released to the workers, at the latest."""

    @property
    def ran(self) -> NDArray[np.bool_]:
        """Which tasks ran in which round."""
        return np.asarray(self.start != MISSING)

    @property
    def seconds(self) -> Floats:
        """How long tasks took; NaN where they did not run."""
        return np.where(self.ran, (self.end - self.start) * 1e-9, np.nan)

    def update(self, round_: int, task: int) -> int:
        """Return the number of the update (or forward pass) that a task in a round belongs to."""
        return round_ * self.copies + int(self.graph.step[task])


@dataclass(frozen=True)
class StepFunction:
    """A number that changes at certain times; `values[i]` holds from `times[i]` on, 0 before."""

    times: Ints
    values: Ints

    @classmethod
    def counting(cls, up: Ints, down: Ints) -> StepFunction:
        """Return how many intervals from up[i] to down[i] are open."""
        times = np.concatenate([up, down])
        change = np.repeat(np.array([1, -1]), [len(up), len(down)])
        # Stable: ends and begins of one moment keep their order, and only the last value of a moment counts.
        order = np.argsort(times, kind="stable")
        times, last = times[order], np.ones(len(times), bool)
        last[:-1] = times[1:] != times[:-1]
        return cls(times[last], np.cumsum(change[order])[last])

    def at(self, times: Ints) -> Ints:
        """Return the values at given times."""
        place = np.searchsorted(self.times, times, side="right") - 1
        return np.where(place < 0, 0, self.values[np.maximum(place, 0)] if len(self.values) else 0)


def build_timeline(
    graph: TaskGraph,
    workers: Sequence[WorkerRecording],
    releases: Sequence[int],
    arrivals: Arrivals | None = None,
) -> Timeline:
    """Return the events of all workers in one table; `releases[u]` is when update u was released.

    Events must be complete from the first update on. A release is noted by Python, a little late: it
    came before the first task began. `arrivals`: of messages that tasks wait for.
    """
    events = np.concatenate([recording.events for recording in workers])
    owner = np.repeat(np.arange(len(workers)), [len(w.events) for w in workers])
    # By task, then time: a task's n-th event is its n-th round.
    order = np.lexsort((events["start_ns"], events["task"]))
    events, owner = events[order], owner[order]
    tasks = events["task"]
    # Where the task's events begin.
    first = np.searchsorted(tasks, tasks)
    rounds = np.arange(len(tasks)) - first
    copies = int(graph.step.max(initial=0)) + 1
    shape = (int(rounds.max(initial=-1)) + 1, graph.size)

    def table(values: NDArray[Any]) -> Ints:
        made = np.full(shape, MISSING, np.int64)
        made[rounds, tasks] = values
        return made

    start, end = table(events["start_ns"]), table(events["end_ns"])
    # The release as noted, or the first start where that was noted late.
    released = _releases(graph, start, releases)
    given = _release_table(graph, start, released, arrivals or {})
    made, waited_for = _last_before(graph, end)
    ready = np.maximum(given, made)
    # Where the release, or the message, came after the last predecessor.
    waited_for[given > made] = MISSING
    # Phases from `copies` on are those of messages: no step releases them.
    waited_for[(given > made) & (graph.phase >= copies)] = MESSAGE
    # Times of two clocks' readings may be out of order by some nanoseconds; then nothing is known.
    known = (ready > 0) & (ready <= start)
    return Timeline(
        graph,
        copies,
        start,
        end,
        table(owner),
        table(events["stolen"]),
        np.where(known, ready, start),
        np.where(known, waited_for, MISSING),
        made,
        released,
    )


def _releases(graph: TaskGraph, start: Ints, noted: Sequence[int]) -> Ints:
    copies = int(graph.step.max(initial=0)) + 1
    began = [
        start[update // copies, graph.phase == update % copies].min()
        for update in range(len(noted))
    ]
    return np.minimum(np.array(noted, np.int64), np.array(began, np.int64))


def _release_table(graph: TaskGraph, start: Ints, releases: Ints, arrivals: Arrivals) -> Ints:
    """Return when the release or message that a task waits for came; 0 for tasks that wait for none."""
    copies = int(graph.step.max(initial=0)) + 1
    made = np.zeros_like(start)
    for update, moment in enumerate(releases.tolist()):
        made[update // copies, graph.phase == update % copies] = moment
    for phase, moments in arrivals.items():
        for round_, moment in enumerate(moments[: len(made)]):
            made[round_, graph.phase == phase] = moment
    return made


def _last_before(graph: TaskGraph, end: Ints) -> tuple[Ints, Ints]:
    """Return when the last predecessor of each task ended, and which that was."""
    made, which = np.zeros_like(end), np.full_like(end, MISSING)
    # Carried edges after the others: they count in the round before.
    for carried in (False, True):
        before, after = graph.edges(carried=carried)
        for round_ in range(int(carried), len(end)):
            ended = end[round_ - int(carried)][before]
            np.maximum.at(made[round_], after, ended)
            # The last of equal ends wins: any of them is right.
            last = ended == made[round_][after]
            which[round_][after[last]] = before[last]
    return made, which


def ready_count(timeline: Timeline) -> StepFunction:
    """Return how many tasks are ready and not yet begun, over time."""
    ran = timeline.ran
    return StepFunction.counting(timeline.ready[ran], timeline.start[ran])


def steps_in_flight(timeline: Timeline) -> StepFunction:
    """Return how many updates are released and not complete, over time."""
    ends = [
        timeline.end[update // timeline.copies, timeline.graph.step == update % timeline.copies]
        for update in range(len(timeline.releases))
    ]
    last = np.array([own.max() for own in ends], np.int64)
    return StepFunction.counting(timeline.releases, last)
