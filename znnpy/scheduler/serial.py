"""The serial executor: runs tasks in a fixed order on the calling thread, as a reference for parallel results."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.scheduling import serial as native

from znnpy.closing import Closing
from znnpy.graph import TaskGraph
from znnpy.scheduler.errors import SchedulerError
from znnpy.scheduler.recording import WorkerRecording, ring_in_order

SLICE_NS = 50_000_000
"""Longest stay in compiled code (50 ms): Python handles Ctrl-C only in between."""


class SerialExecutor(Closing):
    """Runs ready tasks inside `wait`, the most urgent first, lower task numbers first among equals.

    Has the methods of `Executor`. `release` only makes tasks ready; tasks that a group does not need may be left for
    a later `wait`. `own_time`: tasks are recorded by the time for which this thread ran, without what others took of
    its core. Not thread-safe.
    """

    def __init__(self, graph: TaskGraph, record: int = 0, *, own_time: bool = False) -> None:
        self.graph = graph
        self._clock = native.THREAD_TIME if own_time else native.MONOTONIC
        # Highest priority first, lower numbers first among equals: one order for all, whatever is ready when.
        self._order = np.lexsort((np.arange(graph.size), -graph.priority))
        # The inverse: place of each task in that order, which is what the heap compares.
        self._ranks = np.argsort(self._order)
        self._sources = [np.flatnonzero(graph.phase == phase) for phase in range(graph.phases)]
        self._events = np.zeros((record, 4), np.int64)
        self.reset()

    def reset(self) -> None:
        """Set every counter to its first value; drop ready tasks and recorded events."""
        self._tasks = task_table(self.graph)
        members = np.bincount(self.graph.group[self.graph.group >= 0], minlength=self.graph.groups)
        self._groups = np.stack([members, members, np.zeros_like(members)], axis=1)
        # Room for all tasks at once: each is ready at most once at a time.
        self._heap = np.zeros(self.graph.size, np.int64)
        self._state = np.zeros(native.STATE_WORDS, np.int64)
        self._state[native.CLOCK] = self._clock
        self._releases = np.zeros(self.graph.phases, np.int64)

    def release(self, phase: int) -> None:
        """Release a phase: give each of its sources the token that it waits for from outside."""
        check_phase(self.graph, phase)
        # The injector's lock has no counterpart: this executor is not thread-safe.
        count = self._releases[phase : phase + 1]
        native.release(
            self._tasks, self._ranks, self._heap, self._state, self._sources[phase], count
        )

    def released(self, phase: int) -> int:
        """Return how often the phase was released since the start or the last reset, even after an interrupt."""
        return int(self._releases[phase]) if phase < len(self._releases) else 0

    def wait(self, group: int, count: int, timeout: float | None = None) -> bool:
        """Run tasks until the group has completed `count` times; return False if the timeout ends first.

        A task is never cut off, so a wait may end late by one task. Raises SchedulerError when no task is ready and
        the group is not complete: no later call could complete it either.
        """
        check_group(self.graph, group)
        limit = None if timeout is None else time.monotonic_ns() + int(timeout * 1e9)
        while True:
            budget = SLICE_NS if limit is None else min(SLICE_NS, limit - time.monotonic_ns())
            outcome = self._run(group, count, budget)
            if outcome == native.DONE:
                return True
            if outcome == native.TOKEN_TOO_EARLY:
                raise token_too_early(self.graph, int(self._state[native.OVERFLOW]) - 1)
            if outcome == native.NOTHING_READY:
                raise self._stuck(group, count)
            if limit is not None and time.monotonic_ns() >= limit:
                return False

    def completed(self, group: int) -> int:
        """Return how often all tasks of the group have run since the start or the last reset."""
        check_group(self.graph, group)
        return int(self._groups[group, native.COMPLETED])

    def recording(self) -> list[WorkerRecording]:
        """Return the recording of the calling thread, the only worker."""
        executed = int(self._state[native.EXECUTED])
        return [WorkerRecording(ring_in_order(self._events, executed), executed, 0, 0, 0, 0)]

    def close(self) -> None:
        """Do nothing: here so that executors can stand in for one another."""

    def _run(self, group: int, count: int, budget: int) -> int:
        return int(
            native.run(
                self._tasks,
                self.graph.successors,
                self._ranks,
                self._order,
                self._groups,
                self._heap,
                self._state,
                self._events,
                group,
                count,
                budget,
            )
        )

    def _stuck(self, group: int, count: int) -> SchedulerError:
        counters = self._tasks[:, native.COUNTER]
        partly = np.flatnonzero((counters > 0) & (counters < self.graph.joins))
        shown = ", ".join(
            # Five are enough to see where it stopped; a graph may have thousands.
            f"{self.graph.names[task]} ({counters[task]} of {self.graph.joins[task]} missing)"
            for task in partly[:5]
        )
        return SchedulerError(
            f"wait(group={group}, count={count}): no task is ready and the group has completed "
            f"{self.completed(group)} times. Half-way there: {shown or 'none'}. "
            "Was the phase released?"
        )


def task_table(graph: TaskGraph) -> NDArray[np.int64]:
    """Return the table that `native.run` works on, one row a task, counters set for a first run."""
    table = np.zeros((graph.size, native.TASK_COLUMNS), np.int64)
    table[:, native.COUNTER] = graph.initial
    table[:, native.JOINS] = graph.joins
    table[:, native.KERNEL] = graph.addresses
    table[:, native.ARGUMENTS] = graph.words.ctypes.data + 8 * graph.offsets
    table[:, native.FIRST] = graph.successor_starts[:-1]
    table[:, native.LAST] = graph.successor_starts[1:]
    table[:, native.GROUP] = graph.group
    return table


def check_phase(graph: TaskGraph, phase: int) -> None:
    """Raise SchedulerError for a phase that the graph does not have."""
    if not 0 <= phase < graph.phases:
        raise SchedulerError(f"release({phase}): the graph has {graph.phases} phases, from 0")


def check_group(graph: TaskGraph, group: int) -> None:
    """Raise SchedulerError for a group that the graph does not have."""
    if not 0 <= group < graph.groups:
        raise SchedulerError(f"group {group}: the graph has {graph.groups} groups, from 0")


def token_too_early(graph: TaskGraph, task: int) -> SchedulerError:
    """Return the error for a second token on an edge whose first one was not consumed."""
    return SchedulerError(
        f"task {graph.names[task]} got a token before it had started with the earlier ones: a "
        "predecessor (or its phase) ran again too soon. Add a carried edge from this task to that "
        "predecessor, or wait for its group before releasing the phase again."
    )
