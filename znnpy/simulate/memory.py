"""Bytes from and to memory: a machine's figures, and what tasks move there by a model of its last-level caches.

A run simulated without memory's limits says which worker begins which task when. Its workers are spread evenly over
the caches, each of which keeps what was touched last (`znnpy_kernels.scheduling.caches`); what a task needs and no
cache holds counts, and so does what it stored once a cache drops it. Caches nearer to the cores hold parts of that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from znnpy_kernels.scheduling.caches import count_traffic

from znnpy.graph import Touched
from znnpy.simulate.replay import Machine, Replay, working
from znnpy.simulate.run import Outcome


@dataclass(frozen=True)
class Figures:
    """A machine's cores, bytes a second of its memory, bytes of its last-level caches together, and their number."""

    cores: int
    bandwidth: float
    cache: float
    domains: int


@dataclass(frozen=True, eq=False)
class Memory:
    """The memory of a machine, and what the tasks of a network touch of it."""

    figures: Figures
    touched: Touched

    def counted(self, replay: Replay, free: Outcome, workers: int) -> Replay:
        """Return the replay with the bytes that each task moves on average.

        `free`: a run of it on so many workers without memory's limits, all of whose tasks were kept in `log`. Its
        first half fills the caches.
        """
        works = working(replay.graph)
        number = np.cumsum(works) - 1
        task, worker = free.log[:, 0].astype(np.int64), free.log[:, 1].astype(np.int64)
        moves = works[task]
        task, worker = number[task[moves]], worker[moves]
        caches, half = min(self.figures.domains, workers), len(task) // 2
        moved = np.zeros(int(works.sum()))
        it = self.touched
        count_traffic(
            task,
            worker * caches // workers,
            half,
            it.starts,
            it.stripes,
            it.written,
            it.sizes,
            self.figures.cache / self.figures.domains,
            caches,
            moved,
        )
        runs = np.bincount(task[half:], minlength=len(moved))
        traffic = np.zeros(replay.graph.size)
        traffic[works] = moved / np.maximum(runs, 1)
        return replace(replay, traffic=traffic)

    def on(self, machine: Machine) -> Machine:
        """Return a machine with this memory in place of what was measured of its own."""
        return replace(machine, bandwidth=np.inf, memory=self.figures.bandwidth)


def bytes_of_step(replay: Replay) -> float:
    """Return the bytes of one step."""
    return float(replay.traffic.sum()) / (int(replay.graph.step.max()) + 1)


def waits_by_kind(replay: Replay, outcome: Outcome) -> dict[str, float]:
    """Return the seconds of a step for which workers waited for memory, by kind of task, the most first."""
    kinds = np.array(replay.graph.kinds)
    found = {
        str(kind): float(outcome.waited[kinds == kind].sum()) / outcome.steps
        for kind in np.unique(kinds)
    }
    return {
        kind: seconds
        for kind, seconds in sorted(found.items(), key=lambda item: -item[1])
        if seconds > 0
    }


def bytes_by_kind(replay: Replay) -> dict[str, float]:
    """Return the bytes of one step by kind of task."""
    kinds, copies = np.array(replay.graph.kinds), int(replay.graph.step.max()) + 1
    return {
        str(kind): float(replay.traffic[kinds == kind].sum()) / copies for kind in np.unique(kinds)
    }
