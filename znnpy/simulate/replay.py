"""Inputs of the simulator: a task graph with its costs (`Replay`), and the costs of the machine (`Machine`)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from znnpy.graph import TaskGraph
from znnpy.graph.critical_path import bottom_levels

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Machine:
    """Costs of the scheduler and of memory, in seconds.

    The defaults were measured on a 2-core AVX-512 machine (`scripts/bench_scheduler.py`); `steal` includes moving
    the first cache lines to another core.
    """

    dispatch: float = 6e-9
    """Of every task, without the tokens that it brings to successors."""
    successor: float = 3e-9
    """Of bringing a token to one successor."""
    # Two orders above a dispatch: cache lines of the task and its data come from another core.
    steal: float = 4e-7
    """Of taking a task from another worker."""
    wake: float = 1e-5
    """From the push of a task until a sleeping worker searches."""
    # As `executor.SPIN_NS`.
    spin: float = 1e-3
    """How long an idle worker looks for work before it sleeps."""
    submit: float = 0.0
    """Between the end of a step and the release of the next one of its copy."""
    bandwidth: float = np.inf
    """Cores' worth of memory-bound work that the machine sustains.

    Beside each other task such work takes longer by one part of so many (contention as in Gunther's universal
    scalability law).
    """
    memory: float = np.inf
    """Bytes a second that memory moves; workers that ask for more than an even part of them wait for it."""
    caller: float = 0.0
    """Of each step, while the thread that submits steps occupies the core of one of the workers."""

    def rates(self) -> Floats:
        """Return the costs as the array that the compiled loop reads."""
        # In the order of `simulation.DISPATCH` and those behind it.
        return np.array(
            [
                self.dispatch,
                self.successor,
                self.steal,
                self.wake,
                self.spin,
                self.submit,
                self.bandwidth,
                self.memory,
                self.caller,
            ]
        )


ROUNDS = 8
"""Rounds of all copies until the time between them is steady; the second half counts."""
# Spinning for ever: a worker that parked would need a wake-up, which takes time.
IDEAL = Machine(0.0, 0.0, 0.0, 0.0, np.inf)
"""The machine on which nothing but tasks takes time: Brent's bounds for greedy schedules hold exactly."""


def working(graph: TaskGraph) -> NDArray[np.bool_]:
    """Return which tasks do work; graphs with the same working tasks may differ in those that only wait."""
    return np.array([not task.waits for task in graph.tasks])


@dataclass(frozen=True, eq=False)
class Replay:
    """A graph with the measured or estimated seconds of its tasks, run again and again.

    costs: (rounds, tasks), row r for the r-th run of each task, the rows in turn. shares: the part of each task's
    time, 0 to 1, that slows down when memory is crowded. traffic: bytes that each task moves from and to memory.
    """

    graph: TaskGraph
    costs: Floats
    shares: Floats
    traffic: Floats

    @classmethod
    def of(
        cls,
        graph: TaskGraph,
        costs: Floats | None = None,
        shares: Floats | None = None,
        traffic: Floats | None = None,
    ) -> Replay:
        """Return a replay with costs of one round or several (default: the graph's estimates).

        costs, shares, traffic: one column or entry for each task that works, in order; so they may come from another
        graph of the same tasks, under another policy or for other numbers of threads. Tasks that wait for messages get
        theirs as soon as their step begins.
        """
        works = working(graph)
        given = graph.cost[works] if costs is None else costs
        rows = np.zeros((len(np.atleast_2d(given)), graph.size))
        rows[:, works] = given
        crowded, moved = np.zeros((2, graph.size))
        crowded[works] = 0.0 if shares is None else shares
        moved[works] = 0.0 if traffic is None else traffic
        # Phases of messages become those of their step: a token from outside would never come here.
        phase = np.minimum(graph.phase, graph.step)
        return cls(replace(graph, phase=phase), rows, crowded, moved)

    def work(self, steps: int) -> float:
        """Return T1: seconds of all tasks of `steps` steps."""
        copies = int(self.graph.step.max()) + 1
        total = 0.0
        for step in range(steps):
            # Rounds of costs are repeated in turn, as the simulated loop does.
            row = self.costs[step // copies % len(self.costs)]
            total += float(row[self.graph.step == step % copies].sum())
        return total

    def span(self) -> float:
        """Return Tinf: seconds along the longest path of one step, each task as long as its longest run."""
        # The longest run of each task: an upper bound of the path of any step.
        before, after = self.graph.edges(carried=False)
        inside = self.graph.step[before] == self.graph.step[after]
        edges = before[inside], after[inside]
        return float(bottom_levels(edges, self.costs.max(axis=0)).max(initial=0.0))

    def loaded(self, machine: Machine) -> Replay:
        """Return the replay with dispatch and a steal added to every task: for bounds that include overhead."""
        told = np.diff(self.graph.successor_starts)
        more = machine.dispatch + machine.steal + machine.successor * told
        return replace(self, costs=self.costs + more)

    def slowed(self, machine: Machine, workers: int) -> Replay:
        """Return the replay with each task as long as while all workers want their part of memory at once."""
        crowded = 1 + self.shares * (workers - 1) / machine.bandwidth
        return replace(
            self, costs=np.maximum(self.costs * crowded, self.traffic * workers / machine.memory)
        )

    def period(self) -> float:
        """Return the seconds of a step that no number of workers can beat, with as many in flight as copies.

        Each task as long as its mean run, which is no more than the mean over all runs (Jensen; longest paths are
        convex in the tasks' times). A copy's next step is released when its last one is complete.
        """
        graph, size = self.graph, self.graph.size
        cost, copies = self.costs.mean(axis=0), int(self.graph.step.max()) + 1
        inside, later = graph.edges(carried=False), graph.edges(carried=True)
        # Backwards, as levels count from the end of a path; behind each task stands another one that takes until it
        # may begin.
        tasks = np.arange(size)
        edges = np.concatenate([inside[1], tasks]), np.concatenate([inside[0], tasks + size])
        begin, ends = np.zeros(size), list[float]()
        for _ in range(ROUNDS):
            done = bottom_levels(edges, np.concatenate([cost, begin]))[:size]
            ends.append(float(done.max(initial=0.0)))
            complete = np.zeros(copies)
            np.maximum.at(complete, graph.step, done)
            begin = complete[graph.step]
            np.maximum.at(begin, later[1], done[later[0]])
        return (ends[-1] - ends[ROUNDS // 2 - 1]) / (ROUNDS - ROUNDS // 2) / copies


def without_memory(machine: Machine) -> Machine:
    """Return the machine with memory bandwidth for any number of cores."""
    return replace(machine, bandwidth=np.inf, memory=np.inf)
