"""Costs of tasks, dispatch, steals and memory contention, taken from recorded updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.graph import TaskGraph
from znnpy.simulate.replay import Floats, Ints, Machine, Replay, working

# A run three times as long as usual is hardly the task's own work; shorter ones may be caches.
OUTLIER = 3.0
"""Medians of its task: a run that took longer was interrupted by another process."""
# A median of fewer says little.
FEW = 20
"""Samples: with fewer, defaults are used."""


@dataclass(frozen=True, eq=False)
class Measured:
    """Recorded updates on one number of threads.

    graph: what ran; graphs for other numbers of threads have the same working tasks, and may have other edges and
    gates. events: one array of `scheduler.EVENT` a worker, in the order of execution. seconds: wall time of one
    update. caller: seconds of it in which the thread that submits updates computes. cores: of all threads together.
    """

    graph: TaskGraph
    events: Sequence[NDArray[Any]]
    updates: int
    seconds: float
    caller: float = 0.0
    cores: int = 1


@dataclass(frozen=True, eq=False)
class _Runs:
    """All events in one table; `before`: end of the same worker's previous run, 0 at first."""

    task: Ints
    run: Ints
    start: Ints
    end: Ints
    stolen: Ints
    before: Ints
    previous: Ints
    """Task that the same worker ran before, or -1."""


def run_costs(measured: Measured) -> Floats:
    """Return the seconds of each run, (rounds, tasks that work); interruptions are cut to OUTLIER medians.

    Missing rounds of a task get its median; a task that never ran gets 0.
    """
    graph, runs = measured.graph, _runs(measured)
    rounds = int(runs.run.max(initial=0)) + 1
    table = np.full((rounds, graph.size), np.nan)
    table[runs.run, runs.task] = (runs.end - runs.start) * 1e-9
    ran = ~np.isnan(table).all(axis=0)
    middle = np.zeros(graph.size)
    middle[ran] = np.nanmedian(table[:, ran], axis=0)
    # Cut, not dropped: each round needs a time for each task.
    costs = np.minimum(np.where(np.isnan(table), middle, table), OUTLIER * middle)
    return np.ascontiguousarray(costs[:, working(graph)])


def measured_machine(measured: Measured) -> Machine:
    """Return dispatch and steal times as recorded; the defaults where too few were.

    Dispatch is the time between two tasks of a worker when the second was ready, without the time to bring tokens. A
    steal is the time from when a thief is free and the task is ready.
    """
    graph, machine, runs = measured.graph, Machine(), _runs(measured)
    told = np.diff(graph.successor_starts)
    own = (runs.stolen == 0) & (runs.previous >= 0)
    # Without the time to bring tokens, which grows with the successors.
    gaps = (runs.start - runs.before)[own] * 1e-9 - machine.successor * told[runs.previous[own]]
    if len(gaps) >= FEW:
        machine = replace(machine, dispatch=max(0.0, float(np.median(gaps))))
    # A thief is late from when both it and the task were ready.
    free = np.maximum(runs.before, _ready(graph, runs))
    late = (runs.start - free)[(runs.stolen == 1) & (free > 0)] * 1e-9
    # Longer than spinning is a wake-up, not a steal.
    late = late[(late >= 0) & (late < machine.spin)]
    if len(late) >= FEW:
        machine = replace(machine, steal=float(np.median(late)))
    return machine


def slow_down(graph: TaskGraph, alone: Floats, two: Floats) -> Floats:
    """Return by which factor each task takes longer beside another worker, by kind of task.

    Tasks that only wait are left out. `alone`, `two`: seconds of each task with one and with two workers. Kinds with
    too little time to tell get 1.
    """
    kinds = np.array(graph.kinds)[working(graph)]
    times = np.ones(len(kinds))
    for kind in np.unique(kinds):
        own = kinds == kind
        # A hundredth of the time: less is noise.
        if alone[own].sum() > 0.01 * alone.sum():
            times[own] = two[own].sum() / alone[own].sum()
    return times


def memory_shares(times: Floats) -> tuple[Floats, float]:
    """Return (share of each task that memory bounds, cores' worth of such work that the machine sustains).

    `times`: as from `slow_down`. The kind that slows down most is taken to wait for memory all the time, the rest in
    proportion.
    """
    slower = np.maximum(times - 1, 0.0)
    most = float(slower.max(initial=0.0))
    if most <= 0:
        # Nothing slows down: memory carries any number of workers.
        return np.zeros(len(times)), np.inf
    return slower / most, 1 / most


@dataclass(frozen=True, eq=False)
class Calibration:
    """Costs (rounds, tasks), their memory-bound shares and the machine, from the fewest threads measured.

    How much slower, or faster, tasks are beside others comes from two workers against one. `caller`: seconds of a
    step in which the thread that submits it computes; it has a core for itself on fewer workers than `cores`.
    """

    costs: Floats
    faster: Floats
    shares: Floats
    machine: Machine
    caller: float
    cores: int

    def replay(self, graph: TaskGraph, workers: int) -> Replay:
        """Return a graph with these costs; several workers have several caches, which speed up some tasks."""
        costs = self.costs if workers == 1 else self.costs * self.faster
        return Replay.of(graph, costs, self.shares)

    def on(self, workers: int) -> Machine:
        """Return the machine as so many workers find it."""
        # With fewer workers than cores the caller has one for itself.
        return replace(self.machine, caller=self.caller if workers >= self.cores else 0.0)


def calibrated(measured: Mapping[int, Measured]) -> Calibration:
    """Return costs, dispatch and the caller's time from the fewest threads, memory from two threads against one.

    Raises ValueError if nothing was measured.
    """
    if not measured:
        raise ValueError("nothing was measured, so there is nothing to simulate from")
    first, last = measured[min(measured)], measured[max(measured)]
    costs, machine = run_costs(first), measured_machine(first)
    # From the most threads: with one there are no thieves.
    machine = replace(machine, steal=measured_machine(last).steal)
    shares, times = np.zeros(costs.shape[1]), np.ones(costs.shape[1])
    if 1 in measured and 2 in measured:
        alone, two = np.median(costs, axis=0), np.median(run_costs(measured[2]), axis=0)
        times = slow_down(first.graph, alone, two)
        shares, bandwidth = memory_shares(times)
        machine = replace(machine, bandwidth=bandwidth)
    faster = np.minimum(times, 1.0)
    return Calibration(costs, faster, shares, machine, first.caller, first.cores)


def _runs(measured: Measured) -> _Runs:
    fields = ("task", "start_ns", "end_ns", "stolen")
    columns = {name: np.concatenate([e[name] for e in measured.events]) for name in fields}
    before = [np.concatenate([[0], e["end_ns"][:-1]]) for e in measured.events if len(e)]
    previous = [np.concatenate([[-1], e["task"][:-1]]) for e in measured.events if len(e)]
    task, start = columns["task"].astype(np.int64), columns["start_ns"]
    order = np.lexsort((start, task))
    counts = np.bincount(task, minlength=measured.graph.size)
    run = np.empty(len(task), np.int64)
    # Its number among the runs of its task: events sorted by task and time, less where the task's begin.
    run[order] = np.arange(len(task)) - np.repeat(np.cumsum(counts) - counts, counts)
    empty = [np.zeros(0, np.int64)]
    return _Runs(
        task,
        run,
        start,
        columns["end_ns"],
        columns["stolen"],
        np.concatenate(before or empty).astype(np.int64),
        np.concatenate(previous or empty).astype(np.int64),
    )


def _ready(graph: TaskGraph, runs: _Runs) -> Ints:
    """Return when the last predecessor of each event ended; 0 where none was recorded."""
    ends = np.zeros((int(runs.run.max(initial=0)) + 1, graph.size), np.int64)
    ends[runs.run, runs.task] = runs.end
    ready = np.zeros_like(ends)
    before, after = graph.edges(carried=False)
    for row, end in zip(ready, ends, strict=True):
        np.maximum.at(row, after, end[before])
    before, after = graph.edges(carried=True)
    # A carried edge waits for the predecessor's run in the step before.
    for row, end in zip(ready[1:], ends[:-1], strict=True):
        np.maximum.at(row, after, end[before])
    return np.asarray(ready[runs.run, runs.task])
