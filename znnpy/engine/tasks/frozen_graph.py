"""`FrozenGraph`: a task graph as data that another process can run, of tasks whose arena tells buffers apart.

Nothing in it is of one process: buffers have numbers in place of addresses (`Arena.apart`), and so have kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.machine.abi import Kernel
from znnpy_kernels.scheduling.barrier import wait_for_all
from znnpy_kernels.scheduling.run import run_in_turn
from znnpy_kernels.simd.rows import zero_flat

from znnpy.graph import Described, TaskGraph

KERNELS = 0x7FF0 << 48 | 1
"""The first number of a kernel: as float64 a NaN that no arithmetic makes, below those of buffers (`arena.FIRST`)."""
PROCESS, END = 1 << 44, 1 << 48
"""Between which numbers words are addresses of this process: no size, step or bound is as large.

Of the most bits that processes have by themselves: ARM's may have 48, and others of its kernels 39, whose kernels lie
below PROCESS.
"""
BESIDE: tuple[Kernel, ...] = (run_in_turn, wait_for_all, zero_flat)
"""Kernels of tasks that emitters do not declare: runs, gates that save edges, gates of memory."""


@dataclass(frozen=True, eq=False)
class FrozenGraph:
    """A graph's arrays by the names of its fields, `words` on a line; `tasks` among them: numbers of `what`.

    `kernels`: those of tasks, by number. `what`: the descriptions of tasks, each once.
    """

    arrays: Mapping[str, NDArray[Any]]
    kernels: Sequence[Kernel]
    what: Sequence[Described]
    policy: str

    @classmethod
    def of(cls, graph: TaskGraph, kernels: Iterable[Kernel]) -> FrozenGraph | None:
        """Return a graph whose tasks call some of these compiled kernels, with its arrays, so that it cannot run.

        None, and the graph stays as it is, if words tell of this process alone.
        """
        calls = sorted({*kernels, *BESIDE}, key=lambda kernel: kernel.address)
        addresses = np.array([kernel.address for kernel in calls], np.int64)
        words, first = graph.words, min(PROCESS, int(addresses[0]))
        at = np.flatnonzero((words >= first) & (words < END))
        called = np.searchsorted(addresses, words[at])
        own = np.searchsorted(addresses, graph.addresses)
        if not (_found(addresses, called, words[at]) and _found(addresses, own, graph.addresses)):
            return None
        words[at] = KERNELS + called
        numbers = {it: number for number, it in enumerate(dict.fromkeys(graph.tasks))}
        arrays = {it.name: getattr(graph, it.name) for it in fields(graph)}
        del arrays["policy"]
        tasks = np.array([numbers[it] for it in graph.tasks], np.int64)
        return cls(
            arrays | {"addresses": own, "tasks": tasks},
            calls,
            list(numbers),
            graph.policy,
        )

    def graph(self) -> TaskGraph:
        """Return the graph, with the addresses of its kernels, which are compiled by now; it takes the arrays."""
        addresses = np.array([kernel.address for kernel in self.kernels], np.int64)
        words = self.arrays["words"]
        at = np.flatnonzero((words >= KERNELS) & (words < KERNELS + len(addresses)))
        words[at] = addresses[words[at] - KERNELS]
        tasks = tuple(self.what[number] for number in self.arrays["tasks"].tolist())
        own = {"words": words, "addresses": addresses[self.arrays["addresses"]]}
        return TaskGraph(**{**self.arrays, **own, "tasks": tasks}, policy=self.policy)


def _found(known: NDArray[np.int64], places: NDArray[np.int64], values: NDArray[np.int64]) -> bool:
    return bool((places < len(known)).all() and (known[places] == values).all())
