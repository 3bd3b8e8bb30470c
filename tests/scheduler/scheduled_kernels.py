"""Kernels and random graphs for the scheduler's tests, and the judge of what ran when."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.atomics import add_acq_rel, load_acquire, pause, store_release
from znnpy_kernels.machine.memory import floats, longs
from znnpy_kernels.machine.native import sched_yield
from znnpy_kernels.scheduling.parking import nanoseconds

from znnpy.graph import POLICIES, GraphBuilder, Named, TaskGraph

STAMP = words("clock log task spins yields")


@kernel(STAMP)
def stamp(args: Any, worker: int) -> None:
    """Write task + 1 into the log, dawdle, write -(task + 1); the clock counts log entries."""
    longs(args[STAMP.log])[add_acq_rel(args[STAMP.clock], 1)] = args[STAMP.task] + 1
    for _ in range(args[STAMP.spins]):
        pause()
    for _ in range(args[STAMP.yields]):
        sched_yield()
    longs(args[STAMP.log])[add_acq_rel(args[STAMP.clock], 1)] = -(args[STAMP.task] + 1)


COUNT = words("word")


@kernel(COUNT)
def count(args: Any, worker: int) -> None:
    """Add one to a word."""
    add_acq_rel(args[COUNT.word], 1)


WAIT_FOR = words("word wanted met")


@kernel(WAIT_FOR)
def wait_for(args: Any, worker: int) -> None:
    """Wait, 5 minutes at most, until a word has reached a value; met becomes 1 if it has."""
    end = nanoseconds() + 300_000_000_000
    while load_acquire(args[WAIT_FOR.word]) < args[WAIT_FOR.wanted] and nanoseconds() < end:
        sched_yield()
    store_release(
        args[WAIT_FOR.met], 1 if load_acquire(args[WAIT_FOR.word]) >= args[WAIT_FOR.wanted] else -1
    )


HALVE = words("values count")


@kernel(HALVE)
def halve(args: Any, worker: int) -> None:
    """Halve float32 numbers."""
    for index in range(args[HALVE.count]):
        floats(args[HALVE.values])[index] *= np.float32(0.5)


FOLD = words("values count target spins yields")


@kernel(FOLD)
def fold(args: Any, worker: int) -> None:
    """Halve the target's float32, add those at the given addresses in order; dawdle in between."""
    total = floats(args[FOLD.target])[0] * np.float32(0.5)
    for _ in range(args[FOLD.spins]):
        pause()
    for index in range(args[FOLD.count]):
        total += floats(longs(args[FOLD.values])[index])[0]
    for _ in range(args[FOLD.yields]):
        sched_yield()
    floats(args[FOLD.target])[0] = total


@dataclass
class Folded:
    """A graph of folds: every task adds what its predecessors left; `kept` holds what tasks read."""

    graph: TaskGraph
    values: NDArray[np.float32]
    kept: list[NDArray[np.int64]]

    def start(self) -> None:
        """Values as they are at first."""
        self.values[:] = np.random.default_rng(0).standard_normal(len(self.values))


def folds(seed: int, size: int = 30) -> Folded:
    """A random graph, twice; its values depend on the order of any two tasks that touch the same."""
    rng = np.random.default_rng(seed)
    builder, kept = GraphBuilder(), []
    values = np.zeros(2 * size, np.float32)
    inner = [sorted({int(n) for n in rng.integers(0, b, rng.integers(0, 4))} if b else set())
             for b in range(size)]  # fmt: skip
    delays = rng.integers(0, 60, (2 * size, 2)) * (rng.random((2 * size, 2)) < (0.5, 0.1))
    for step in (0, 1):
        for task, before in enumerate(inner):
            read = [values.ctypes.data + 4 * (step * size + other) for other in before]
            read += [values.ctypes.data + 4 * ((1 - step) * size + task)]
            kept.append(np.array(read, np.int64))
            words = fold.arguments(
                values=kept[-1].ctypes.data,
                count=len(read),
                target=values.ctypes.data + 4 * (step * size + task),
                spins=delays[step * size + task, 0],
                yields=delays[step * size + task, 1] // 20,
            )
            builder.task(
                fold.address,
                words,
                Named(f"{step} {task}", "fold"),
                cost=1e-6 * (1 + delays[task, 0]),
                phase=-1 if before else step,
                group=step,
                step=step,
            )
    for task, before in enumerate(inner):
        for step in (0, 1):
            for other in before:
                builder.precede(step * size + other, step * size + task)
        builder.precede(task, size + task)
        builder.precede(size + task, task, carried=True)
    return Folded(builder.build(list(POLICIES)[seed % len(POLICIES)]), values, kept)


@dataclass
class Logged:
    """A graph of stamps, and where they write."""

    graph: TaskGraph
    clock: NDArray[np.int64]
    log: NDArray[np.int64]


def two_copies(seed: int, size: int = 30, steps: int = 6) -> Logged:
    """A random graph twice, as even and odd step, phase and group 0 and 1, with edges across.

    Every edge across has its counterpart the other way, as weights (written by one step, read by
    the next, and free to be overwritten after) have it.
    """
    rng = np.random.default_rng(seed)
    clock, log = np.zeros(1, np.int64), np.zeros(2 * size * steps, np.int64)
    builder = GraphBuilder()
    delays = rng.integers(0, 60, size) * (rng.random(size) < 0.5)
    yields = (rng.random(size) < 0.15).astype(int)
    inner = [(a, b) for b in range(1, size) for a in set(rng.integers(0, b, rng.integers(0, 4)))]
    sources = set(range(size)) - {after for _, after in inner}
    for step in (0, 1):
        for task in range(size):
            words = stamp.arguments(
                clock=clock.ctypes.data,
                log=log.ctypes.data,
                task=step * size + task,
                spins=delays[task],
                yields=yields[task],
            )
            builder.task(
                stamp.address,
                words,
                Named(f"{['even', 'odd'][step]} {task}", "stamp"),
                cost=1e-6 * (1 + delays[task]),
                phase=step if task in sources else -1,
                group=step,
                step=step,
            )
        for before, after in inner:
            builder.precede(step * size + before, step * size + after)
    for before, after in rng.integers(0, size, (int(rng.integers(0, size)), 2)).tolist():
        builder.precede(before, size + after)
        builder.precede(size + after, before, carried=True)
    policy = ["critical-path", "distance", "fifo", "lifo", "random"][seed % 5]
    return Logged(builder.build(policy), clock, log)


def judge(logged: Logged, runs: int) -> None:
    """Play the token game over the log: nothing starts early, everything ran `runs` times."""
    graph = logged.graph
    before = np.repeat(np.arange(graph.size), np.diff(graph.successor_starts))
    tokens = graph.carried.astype(np.int64)
    incoming = [np.flatnonzero(graph.successors == task) for task in range(graph.size)]
    outgoing = [np.flatnonzero(before == task) for task in range(graph.size)]
    started, ended = np.zeros(graph.size, int), np.zeros(graph.size, int)
    for entry in logged.log[: logged.clock[0]].tolist():
        task = abs(entry) - 1
        if entry > 0:
            assert (tokens[incoming[task]] == 1).all(), f"{graph.names[task]} started too early"
            tokens[incoming[task]] = 0
            started[task] += 1
        else:
            tokens[outgoing[task]] += 1
            ended[task] += 1
            assert (tokens[outgoing[task]] == 1).all(), f"{graph.names[task]} ran twice"
    assert (started == runs).all()
    assert (ended == runs).all()
