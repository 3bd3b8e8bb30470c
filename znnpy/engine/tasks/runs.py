"""Joins small tasks to runs, one task each, where a pass has many more of them than its workers need.

Emitters cut work into leaves by sizes alone, since where a sum is cut decides its last bits. A task is any number of
leaves that were declared one after the other: they run in that order, so bits are those of the leaves, whatever the
number of workers. Few workers then have few tasks to declare edges for, to hand out and to steal. What `follows` a leaf
is in its run, however long that is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from znnpy.engine.memory.regions import Key, Region
from znnpy.engine.tasks.declaration import Declared
from znnpy.engine.tasks.task_identity import Identity, Pass
from znnpy.plan.partition import FEWEST, TASKS_EACH

MOST_SECONDS = 2e-3
"""Of a run: longer tasks would keep workers waiting at the ends of passes, while 2 ms cost nothing to hand out."""
TASKS_ALONE = 4
"""Tasks of a pass where each worker may count on TASKS_EACH: fewer share a pass unevenly, where no other is ready.

A worker alone shares with nobody; four let what follows begin before a pass is complete, while data are in its caches.
"""
SHORT_SECONDS, TASKS_SHORT = 5e-5, 8
"""Of few workers' runs that are shorter than this, a pass has so many for each: each token that one of these tasks
brings to another is a line of another core's cache.
"""


def in_runs(tasks: Sequence[Declared], workers: int, microbatches: int = 1) -> list[Declared]:
    """Return the tasks of a step for so many workers: leaves of one part of a pass joined while they are short.

    Gates are among them: no run crosses one. `microbatches`: for which those of one stand, all alike.
    """
    passes = defaultdict[tuple[str | None, Pass], float](float)
    for task in tasks:
        times = 1 if task.what.serves is Pass.UPDATE else microbatches
        passes[_pass(task.what)] += task.cost * times
    longest = {which: _longest(seconds, workers) for which, seconds in passes.items()}
    made, run = list[Declared](), _Run()
    for task in tasks:
        if not run.takes(task, longest[_pass(task.what)]):
            made += run.task()
            run = _Run()
        run.add(task)
    return made + run.task()


def _longest(seconds: float, workers: int) -> float:
    """Return how long runs of a pass of so many seconds may be."""
    if workers == 1:
        return min(MOST_SECONDS, seconds / TASKS_ALONE)
    long = seconds / (TASKS_EACH * workers)
    if workers <= FEWEST:
        long = max(long, min(SHORT_SECONDS, seconds / (TASKS_SHORT * workers)))
    return min(MOST_SECONDS, long)


def _pass(what: Identity) -> tuple[str | None, Pass]:
    return what.owner, what.serves


class _Run:
    """Leaves that become one task, and the regions that they touch together."""

    def __init__(self) -> None:
        self._leaves: list[Declared] = []
        self._seconds = 0.0
        self._noted = 0
        """Leaves whose regions are in `_reads` and `_writes`: those of a single leaf are not asked for."""
        self._reads = _Regions()
        self._writes = _Regions()

    def takes(self, task: Declared, most: float) -> bool:
        """Return whether the run has room for a leaf, within `most` seconds, and may hold it."""
        if not self._leaves or task.follows:
            return True
        first = self._leaves[0]
        alike = first.what == task.what and first.stage == task.stage
        if not alike or self._seconds + task.cost > most:
            return False
        if not (_joins(first) and _joins(task)):
            return False
        self._note()
        return all(map(self._is_known, task.reads))

    def add(self, task: Declared) -> None:
        """Add a leaf."""
        self._leaves.append(task)
        self._seconds += task.cost

    def _note(self) -> None:
        """Note the regions of leaves that were added since."""
        for task in self._leaves[self._noted :]:
            for region in task.reads:
                if not self._writes.holds(region):
                    self._reads.add(region)
            for region in task.writes:
                self._writes.add(region)
        self._noted = len(self._leaves)

    def task(self) -> list[Declared]:
        """Return the run as a task, if it has leaves."""
        if len(self._leaves) < 2:
            return self._leaves
        self._note()
        first, *others = self._leaves
        calls = (((task.kernel, task.arguments), *task.more) for task in others)
        more = (*first.more, *chain.from_iterable(calls))
        reads, writes = self._reads.merged(), self._writes.merged()
        return [replace(first, cost=self._seconds, reads=reads, writes=writes, more=more)]

    def _is_known(self, region: Region) -> bool:
        """Return whether what a leaf reads was written before the run, or by its leaves alone, not in part by each."""
        if not self._writes.meets(region):
            return True
        return self._writes.holds(region) or self._reads.holds(region)


def _joins(task: Declared) -> bool:
    """Return whether nobody waits for the task by itself, and it for nobody outside the graph."""
    return task.group < 0 and task.phase < 0 and not (task.between or task.anew or task.urgent)


class _Regions:
    """Regions by key and strand, joined with the one before where they touch.

    Written for many leaves of few regions: no objects are made that are not kept.
    """

    def __init__(self) -> None:
        self._strands: dict[Key, dict[int, list[tuple[int, int]]]] = {}

    def add(self, region: Region) -> None:
        """Add a region."""
        buffer, low, high, section, strand = region
        key = buffer, section
        if (strands := self._strands.get(key)) is None:
            strands = self._strands[key] = {}
        if (ranges := strands.get(strand)) is None:
            strands[strand] = [(low, high)]
            return
        first, last = ranges[-1]
        if low <= last and first <= high:
            ranges[-1] = (low if low < first else first, high if high > last else last)
        else:
            ranges.append((low, high))

    def holds(self, region: Region) -> bool:
        """Return whether one range holds all of a region."""
        buffer, low, high, section, strand = region
        if (strands := self._strands.get((buffer, section))) is None:
            return False
        # Not by `any`, whose generator takes as long again.
        for first, last in strands.get(strand, ()):  # noqa: SIM110
            if first <= low and high <= last:
                return True
        return False

    def meets(self, region: Region) -> bool:
        """Return whether a region may overlap one of these."""
        key = region.key
        return key in self._strands and any(map(region.overlaps, self._of(key)))

    def _of(self, key: Key) -> Iterator[Region]:
        for strand, ranges in self._strands[key].items():
            for low, high in ranges:
                yield Region(key[0], low, high, key[1], strand)

    def merged(self) -> tuple[Region, ...]:
        """Return all regions."""
        return tuple(region for key in self._strands for region in self._of(key))
