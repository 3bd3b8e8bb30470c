"""A task graph with its costs, and the machine that is to run it in time that is added up."""

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
    """What the scheduler and the memory cost, in seconds.

    The defaults were measured on a 2-core AVX-512 machine (`scripts/bench_scheduler.py`); `steal`
    includes the way of the first cache lines to another core.
    """

    dispatch: float = 6e-9
    """Of every task, beside what its successors take."""
    successor: float = 3e-9
    """Bringing a token."""
    steal: float = 4e-7
    wake: float = 1e-5
    """From the push to the search of a worker that was parked."""
    spin: float = 1e-3
    """How long an idle worker looks for work before it parks."""
    submit: float = 0.0
    """Between the end of a step and the release of the next one of its copy."""
    bandwidth: float = np.inf
    """How many cores' worth of memory-bound work the machine does at most: beside each other task it
    takes longer by one part of so many (contention as in Gunther's universal scalability law)."""
    caller: float = 0.0
    """Of each step, while the thread that hands steps over has the core of one of the workers."""

    def rates(self) -> Floats:
        """The words that the compiled loop reads."""
        return np.array(
            [
                self.dispatch,
                self.successor,
                self.steal,
                self.wake,
                self.spin,
                self.submit,
                self.bandwidth,
                self.caller,
            ]
        )


IDEAL = Machine(0.0, 0.0, 0.0, 0.0, np.inf)
"""Nothing but the tasks takes time: greedy, so that Brent's bounds hold exactly."""


def working(graph: TaskGraph) -> NDArray[np.bool_]:
    """Which tasks do anything: graphs of the same ones may have different ones that only wait."""
    return np.array([not task.waits for task in graph.tasks])


@dataclass(frozen=True, eq=False)
class Replay:
    """A graph whose copies run in turn, and seconds of its tasks.

    costs: (rounds, tasks), row r for the r-th run of each task, the rows in turn. shares: of each
    task's time, how much slows down when memory is crowded, 0 to 1.
    """

    graph: TaskGraph
    costs: Floats
    shares: Floats

    @classmethod
    def of(
        cls, graph: TaskGraph, costs: Floats | None = None, shares: Floats | None = None
    ) -> Replay:
        """Costs of one round or several (default: the graph's estimates).

        costs, shares: one column or entry for each task that works, in order; so they may come from
        another graph of the same tasks, under another policy or for other numbers of threads. What waits for
        messages in the graph has them as soon as its step begins.
        """
        works = working(graph)
        given = graph.cost[works] if costs is None else costs
        rows = np.zeros((len(np.atleast_2d(given)), graph.size))
        rows[:, works] = given
        crowded = np.zeros(graph.size)
        crowded[works] = 0.0 if shares is None else shares
        phase = np.minimum(graph.phase, graph.step)
        return cls(replace(graph, phase=phase), rows, crowded)

    def work(self, steps: int) -> float:
        """T1: seconds of all tasks of so many steps."""
        copies = int(self.graph.step.max()) + 1
        total = 0.0
        for step in range(steps):
            row = self.costs[step // copies % len(self.costs)]
            total += float(row[self.graph.step == step % copies].sum())
        return total

    def span(self) -> float:
        """Tinf: seconds along the longest path of one step, each task as long as its longest run."""
        before, after = self.graph.edges(carried=False)
        inside = self.graph.step[before] == self.graph.step[after]
        edges = before[inside], after[inside]
        return float(bottom_levels(edges, self.costs.max(axis=0)).max(initial=0.0))

    def loaded(self, machine: Machine) -> Replay:
        """The same with every task as long as if it were stolen: for bounds that hold with overhead."""
        told = np.diff(self.graph.successor_starts)
        more = machine.dispatch + machine.steal + machine.successor * told
        return replace(self, costs=self.costs + more)


def without_memory(machine: Machine) -> Machine:
    """The same machine with memory for any number of cores."""
    return replace(machine, bandwidth=np.inf)
