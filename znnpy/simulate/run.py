"""Runs replays on simulated workers: one process, or ranks that send each other messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.scheduling import simulation as native
from znnpy_kernels.scheduling.control_block import BANDS
from znnpy_kernels.scheduling.simulated_ranks import Graphs, Mail, Ranks
from znnpy_kernels.scheduling.simulated_ranks import simulate as run_ranks

from znnpy.graph import GraphError
from znnpy.simulate.replay import Floats, Ints, Machine, Replay

Place = tuple[int, int]
"""A rank, and a task of its graph."""


@dataclass(frozen=True)
class Message:
    """A message that leaves when all tasks of `after` have run, and brings a token to each of `to`.

    It occupies the port `source` for `lasts` seconds and, `latency` seconds later, the port `target` for as long.
    """

    after: tuple[Place, ...]
    to: tuple[Place, ...]
    source: int
    target: int
    lasts: float
    latency: float


@dataclass(frozen=True)
class Outcome:
    """The result of a simulated run; times in seconds, from the first release to the end of the last step."""

    seconds: float
    steps: int
    overhead: float
    """Dispatch, steals and their cache misses of all workers together."""
    steals: int
    wake_ups: int
    log: Floats
    """(task, worker, start) of the runs of rank 0, in order of start; as many rows as were asked for."""
    completions: Floats
    """When each step was complete, (ranks, steps)."""
    carried: Floats
    """Seconds that each port was in use, (ports, ways out and in)."""
    waited: Floats
    """Seconds by which memory made the runs of each task of rank 0 longer."""

    @property
    def seconds_per_step(self) -> float:
        """Return the mean time of a step."""
        return self.seconds / self.steps

    @property
    def steady(self) -> float:
        """Return the mean time of a step on all ranks, without the first two and the last, which overlap less."""
        last = self.completions.max(axis=0)
        # From the end of the second step to that of the last but one: the first two fill the pipeline, the last
        # one empties it.
        return float((last[-2] - last[1]) / (len(last) - 3))


def simulate(
    replay: Replay,
    workers: int,
    machine: Machine | None = None,
    steps: int = 10,
    seed: int = 0,
    log: int = 0,
) -> Outcome:
    """Run `steps` steps, two (as many as there are copies) in flight, on simulated workers.

    The same arguments give the same bits. Raises GraphError when the graph can make no progress.
    Source of the bounds that hold: Brent 1974; ZNN, arXiv 1510.06706, section V.
    """
    return simulate_ranks([replay], [], workers, machine, steps, seed, log)


def simulate_ranks(
    replays: Sequence[Replay],
    messages: Sequence[Message],
    workers: int,
    machine: Machine | None = None,
    steps: int = 10,
    seed: int = 0,
    log: int = 0,
    ports: int = 0,
) -> Outcome:
    """Run every rank's replay on `workers` workers of its own, with messages between them.

    A message must not be posted again before it has come: what follows from it must come before
    its next post. All replays have as many rounds of costs; each rank begins with another one.
    """
    machine, count = machine or Machine(), len(replays)
    graphs = [replay.graph for replay in replays]
    copies = int(graphs[0].step.max()) + 1
    firsts, offsets = _offsets([g.size for g in graphs]), _offsets([*map(_edges, replays)])
    # From 1: xorshift never leaves 0.
    randoms = np.random.default_rng(seed).integers(1, 1 << 62, (count, workers))
    hands = np.stack([np.full((count, workers), native.NONE), randoms], axis=2)
    totals, completions = np.zeros((count, native.MISSING + copies)), np.zeros((count, steps))
    logs, carried = np.zeros((count, log, 3)), np.zeros((ports, 2))
    tasks = Graphs(
        firsts=firsts,
        offsets=offsets,
        tasks=np.concatenate([_tasks(replay, rank) for rank, replay in enumerate(replays)]),
        starts=np.concatenate([graph.successor_starts for graph in graphs]),
        successors=np.concatenate([graph.successors for graph in graphs]),
        costs=np.concatenate([np.ascontiguousarray(replay.costs.T) for replay in replays]),
        shares=np.concatenate([replay.shares for replay in replays]),
        traffic=np.concatenate([replay.traffic for replay in replays]),
    )
    state = Ranks(
        # Of deques, empty: every list is linked through its tasks, as each is in one deque at a time.
        links=np.full((int(firsts[-1]), 2), native.NONE),
        waited=(waited := np.zeros(int(firsts[-1]))),
        # One queue more than workers: the injector.
        ends=np.full((count, (workers + 1) * BANDS, 2), native.NONE),
        queued=np.zeros((count, BANDS), np.int64),
        hands=hands,
        clock=np.zeros((count, workers, 4)),
        rates=machine.rates(),
        totals=totals,
        logs=logs,
        members=np.stack([np.bincount(graph.step, minlength=copies) for graph in graphs]),
        completions=completions,
        steps=np.zeros((count, 2), np.int64),
        due=np.zeros((count, 1)),
    )
    done = run_ranks(tasks, state, _mail(messages, firsts, carried))
    # The loop ends when nothing can happen any more: tokens are missing.
    if done < steps * count:
        of = f"of {steps} steps" if count == 1 else f"of {steps} steps on each of {count} ranks"
        raise GraphError(
            f"simulated on {workers} workers, the graph made no progress after {done} {of}"
        )
    return Outcome(
        float(completions.max()),
        steps,
        float(totals[:, native.OVERHEAD].sum()),
        int(totals[:, native.STEALS].sum()),
        int(totals[:, native.WAKE_UPS].sum()),
        logs[0, : int(totals[0, native.RAN])],
        completions,
        carried,
        waited[: graphs[0].size],
    )


def _offsets(sizes: Sequence[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _edges(replay: Replay) -> int:
    return len(replay.graph.successors)


def _tasks(replay: Replay, rank: int) -> Ints:
    graph = replay.graph
    columns = [graph.initial, graph.joins, graph.band, graph.step, graph.phase]
    # The last column counts runs: each rank begins with another round of costs, or all would be slow at the
    # same moment.
    return np.stack([*columns, np.full(graph.size, rank)], axis=1)


def _mail(messages: Sequence[Message], firsts: Ints, carried: Floats) -> Mail:
    """Return the messages as arrays of the compiled loop."""
    table = [(len(m.after), len(m.after), m.source, m.target, native.NONE) for m in messages]
    seconds = [(m.lasts, m.latency, 0.0) for m in messages]
    poster = [firsts[rank] + task for m in messages for rank, task in m.after]
    posted = np.repeat(np.arange(len(messages)), [len(m.after) for m in messages])
    # Stable, so that messages of one task leave in the order in which they were declared.
    order = np.argsort(np.array(poster, np.int64), kind="stable")
    counts = np.bincount(np.array(poster, np.int64), minlength=int(firsts[-1]))
    return Mail(
        messages=_rows(table, 5, np.int64),
        seconds=_rows(seconds, 3, np.float64),
        posts=_offsets(counts.tolist()),
        posted=posted[order].astype(np.int64),
        comes=_offsets([len(m.to) for m in messages]),
        targets=_rows([place for m in messages for place in m.to], 2, np.int64),
        carried=carried,
    )


def _rows(values: Sequence[Sequence[float]], width: int, kind: type) -> NDArray[Any]:
    # Reshaped, as an array of no rows would have one axis.
    return np.array(values, kind).reshape(-1, width)
