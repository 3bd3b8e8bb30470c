"""Compares three strategies of convergent sums (tree, exchange, lock): measured here, simulated on 64 workers."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from znnpy_kernels.scheduling.locked_sum import locked_add
from znnpy_kernels.scheduling.wait_free_sum import exchange_deposit
from znnpy_kernels.simd.rows import add_flat, copy_flat

from znnpy.graph import GraphBuilder, Named, TaskGraph
from znnpy.scheduler import Executor, WorkerRecording
from znnpy.simulate import STRATEGIES, FanIn, simulate_sums

# Where the strategies differ clearly; two workers seldom meet at a sum.
MANY = 64
"""Workers for which sums are simulated."""
# Contributions are convolutions, and take about ten times as long as adding them.
MAKING = 10.0
"""Time to make a contribution over time to add it, in the simulation: a convolution against a sum."""
LINE = 16
"""int64 words between two words that different workers write: two cache lines, so that none is shared."""


class Converging:
    """`sums` sums of `contributions` buffers of `length` float32; making one is copying it.

    The source and all buffers belong to this object; the graphs made from it share them, so that
    only one may run at a time.
    """

    def __init__(self, sums: int, contributions: int, length: int) -> None:
        self.sums, self.contributions, self.length = sums, contributions, length
        self.source = np.random.default_rng(0).standard_normal(length).astype(np.float32)
        self.buffers = np.zeros((sums, contributions, length), np.float32)
        self.targets = np.zeros((sums, length), np.float32)
        # Zeros: slot and lock are free.
        self.words = np.zeros((sums, 2, LINE), np.int64)  # slot or lock; remaining or waited

    def graph(self, strategy: str) -> TaskGraph:
        """Return a graph: phase 0 makes all contributions, group 0 is complete when all sums are."""
        builder = GraphBuilder()
        add = {"tree": self._tree, "exchange": self._exchange, "lock": self._lock}[strategy]
        self.words[:] = 0
        for number in range(self.sums):
            makers = [
                builder.task(
                    copy_flat.address,
                    copy_flat.arguments(
                        source=self.source.ctypes.data,
                        target=self._buffer(number, leaf),
                        length=self.length,
                    ),
                    Named("make", "make"),
                    # Estimates for the policy alone; what is measured is the run.
                    cost=1e-5,
                    phase=0,
                )
                for leaf in range(self.contributions)
            ]
            add(builder, number, makers)
        return builder.build()

    def waited(self) -> float:
        """The seconds that tasks have waited for the lock since the graph was made."""
        return float(self.words[:, 1, 0].sum()) * 1e-9

    def _buffer(self, number: int, leaf: int) -> int:
        return int(self.buffers[number, leaf].ctypes.data)

    def _add(
        self, builder: GraphBuilder, kernel: Any, words: dict[str, int], group: int = 0
    ) -> int:
        return builder.task(
            kernel.address,
            kernel.arguments(**words),
            Named("sum", "sum"),
            cost=1e-5,
            group=group,
        )

    def _tree(self, builder: GraphBuilder, number: int, makers: list[int]) -> None:
        made, distance = dict(enumerate(makers)), 1
        while distance < self.contributions:
            # Pairs at distance 1, 2, 4 ...: the tree of `engine/tasks/step.py`.
            for leaf in range(0, self.contributions - distance, 2 * distance):
                place = self._buffer(number, leaf)
                other = self._buffer(number, leaf + distance)
                task = self._add(
                    builder,
                    add_flat,
                    {"first": place, "second": other, "target": place, "length": self.length},
                )
                builder.precede(made[leaf], task)
                builder.precede(made[leaf + distance], task)
                made[leaf] = task
            distance *= 2

    def _exchange(self, builder: GraphBuilder, number: int, makers: list[int]) -> None:
        # Both words: what is left, and how many there are.
        self.words[number, 1, :2] = self.contributions
        for leaf, maker in enumerate(makers):
            words = {
                "slot": int(self.words[number, 0].ctypes.data),
                "buffer": self._buffer(number, leaf),
                "count": self.length,
                "remaining": int(self.words[number, 1].ctypes.data),
                "target": int(self.targets[number].ctypes.data),
            }
            builder.precede(maker, self._add(builder, exchange_deposit, words))

    def _lock(self, builder: GraphBuilder, number: int, makers: list[int]) -> None:
        for leaf, maker in enumerate(makers):
            words = {
                "lock": int(self.words[number, 0].ctypes.data),
                "buffer": self._buffer(number, leaf),
                "count": self.length,
                "target": int(self.targets[number].ctypes.data),
                "waited": int(self.words[number, 1].ctypes.data),
            }
            builder.precede(maker, self._add(builder, locked_add, words))


def compare_sums(
    workers: int, sums: int = 4, contributions: int = 80, length: int = 16_384, repeats: int = 20
) -> list[dict[str, Any]]:
    """Return `sums` of a profile's summary: a row for each strategy, seconds, JSON-able.

    `seconds`: the whole fan-in, the best of `repeats`. `seconds_in_sums`: tasks that add, all workers
    together, and `seconds_waiting`: of these, waiting for a lock; means. `simulated_64`: the fan-in on
    64 workers with the tree's measured addition, when making a contribution takes ten times as long.
    """
    converging = Converging(sums, contributions, length)
    rows = [_measure(converging, name, workers, repeats) for name in STRATEGIES]
    # As measured by the tree, whose tasks add and nothing else.
    adding = rows[0]["seconds_in_sums"] / max(1, sums * (contributions - 1))
    for row in rows:
        fan_in = FanIn(sums, contributions, MAKING * adding, adding)
        row["simulated_64"] = simulate_sums(row["name"], fan_in, MANY)
    return rows


def _measure(converging: Converging, strategy: str, workers: int, repeats: int) -> dict[str, Any]:
    graph, times = converging.graph(strategy), []
    with Executor(graph, workers=workers, record=graph.size * repeats) as executor:
        for count in range(1, repeats + 1):
            start = time.perf_counter()
            executor.release(0)
            executor.wait(0, count)
            times.append(time.perf_counter() - start)
        recordings = executor.recording()
    return {
        "name": strategy,
        # The best of them: others at work only take time away.
        "seconds": min(times),
        "seconds_in_sums": _adding(graph, recordings) / repeats,
        "seconds_waiting": converging.waited() / repeats if strategy == "lock" else 0.0,
    }


def _adding(graph: TaskGraph, recordings: list[WorkerRecording]) -> float:
    """Return the seconds in tasks that add."""
    adds = np.array([kind == "sum" for kind in graph.kinds])
    events = np.concatenate([recording.events for recording in recordings])
    events = events[adds[events["task"]]]
    return float((events["end_ns"] - events["start_ns"]).sum()) * 1e-9
