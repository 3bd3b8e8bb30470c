"""Simulates recorded runs on other numbers of workers, policies and ranks, for the summary's tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from znnpy.distributed.buckets import Pieces
from znnpy.distributed.strategies import Strategy
from znnpy.engine import Model
from znnpy.engine.communication.outbox import hastened
from znnpy.engine.memory.allocation import STEPS
from znnpy.engine.progress import SIMULATING, Report
from znnpy.engine.tasks.task_identity import Identity, Kind, Part, Pass, identities
from znnpy.graph import TaskGraph
from znnpy.profile.recorded_updates import Profile
from znnpy.profile.summary import Layers
from znnpy.scheduler.core_count import available_cores
from znnpy.simulate import (
    Exchange,
    Figures,
    Links,
    Measured,
    Memory,
    compare_policies,
    simulate_profile,
    simulate_scaling,
    what_if,
)
from znnpy.simulate.memory import bytes_by_kind
from znnpy.simulate.replay import working
from znnpy.simulate.speedup_curve import Recorded, prepare

Cells = list[dict[str, Any] | None]

# As `Pieces.bytes`: other sums are of float32, so this tells both apart.
DOUBLES = 8
"""Bytes of the numbers that running statistics are updated by."""
# Beyond the threads that are measured: a plan with the slack of so many workers stands for all larger numbers.
CHANGED = (16, 64)
"""Numbers of workers on which changes are tried."""
MANY = 64
"""Workers that the graphs of a profile are cut for, and that the one beyond measured thread counts is declared for."""
Made = Mapping[int, tuple[Profile, Model]]
"""Profiles and their models (closed) by number of threads."""


def by_strategy(found: Mapping[str, Any]) -> tuple[list[int], dict[str, Cells]]:
    """Return (numbers of ranks, cells by strategy) of a summary's `ranks`; None where nothing was simulated."""
    counts = sorted({row["ranks"] for row in found["rows"]})
    rows: dict[str, Cells] = {}
    for row in found["rows"]:
        # Trees of several colors are rows of their own.
        name = row["strategy"] + (f" {row['colors']}" if row["colors"] > 1 else "")
        cells = rows.setdefault(name, [None] * len(counts))
        cells[counts.index(row["ranks"])] = row
    return counts, rows


def rows_of(simulation: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each number of workers of a summary's `simulation`.

    `speed_up` over the first number (one worker, but on machines of one core); `waiting`: share of the workers' time
    that waits for memory.
    """
    first, names = simulation["seconds"][0], ("seconds", "least", "most", "bytes", "waits")
    columns = zip(simulation["workers"], *(simulation[name] for name in names), strict=True)
    return [
        {
            "workers": count,
            "seconds": seconds,
            "least": least,
            "most": most,
            "bytes": moved,
            "waits": waits,
            "speed_up": first / seconds,
            "waiting": sum(waits.values()) / (count * seconds),
        }
        for count, seconds, least, most, moved, waits in columns
    ]


def memory_of(made: Made, figures: Figures) -> Memory:
    """Return the memory of a machine, with what the recorded tasks touch of it."""
    return Memory(figures, made[max(made)][1].touched())


def simulate_runs(made: Made, other: Memory | None = None) -> dict[str, Any]:
    """Return `simulation` and `grain` of a summary: for this machine, or for an `other` one."""
    return simulate_profile(_measured(made), _wide(made), memory=other)


def simulate_changes(made: Made, other: Memory | None = None) -> dict[str, Any]:
    """Return `what_if` of a summary: a kind twice as fast, a layer's tasks halved."""
    case = Recorded.of(_measured(made), _wide(made), other)
    layers = Layers(made[max(made)][0].network)
    most = other.figures.cores if other else max(CHANGED)
    workers = sorted({min(count, most) for count in CHANGED})

    def named(graph: TaskGraph) -> list[str]:
        return [layers.of(task) for task in identities(graph)]

    steps, caller = made[min(made)][0].updates, case.known.caller
    return what_if(case.replay, case.on, named, workers, steps, other, caller=caller)


def count_memory(made: Made, memory: Memory) -> dict[str, Any]:
    """Return what an update's tasks touch and move from and to memory on all cores, by kind, JSON-able."""
    case = Recorded.of(_measured(made), _wide(made), memory)
    cores, steps = memory.figures.cores, made[min(made)][0].updates
    own = prepare(case.replay(cores), case.on(cores), cores, steps, memory=memory).replay
    reached = np.zeros(own.graph.size)
    reached[working(own.graph)] = memory.touched.bytes()
    touched = bytes_by_kind(replace(own, traffic=reached))
    return {
        **asdict(memory.figures),
        "kinds": {
            kind: {"touched": touched[kind], "moved": moved}
            for kind, moved in bytes_by_kind(own).items()
        },
    }


def simulate_policies(made: Made, seconds: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return `policies` of a summary: measured seconds by policy, and simulated ones beside them."""
    return compare_policies(_measured(made), _wide(made), seconds)


def simulate_ranks(
    made: Made,
    ranks: Sequence[int],
    links: Links,
    colors: int | None = None,
    chunk: int | None = None,
    report: Report | None = None,
) -> dict[str, Any]:
    """Return `ranks` of a summary: every rank computes what was recorded, and they all-reduce gradients.

    `colors`, `chunk` as in `simulate_scaling`; `report` is told of progress.
    """
    # Of the most threads, whose graph is simulated.
    layers = made[max(made)][1].added_up()
    return simulate_scaling(
        _measured(made),
        lambda graph: exchanges(graph, layers),
        urgent,
        ranks,
        links,
        colors=colors,
        chunk=chunk,
        report=partial(report, SIMULATING) if report else None,
    )


def exchanges(graph: TaskGraph, layers: Sequence[Sequence[Pieces]]) -> list[list[Exchange]]:
    """Return the tasks that make and await what ranks add up, of each layer and step."""
    tasks = identities(graph)
    edges = [pair.tolist() for pair in graph.edges(carried=False)]
    makers = defaultdict(set)
    for before, after in zip(*edges, strict=True):
        if _makes(tasks[before], tasks[after]):
            makers[after].add(before)
    uses = defaultdict(list)
    for task, what in enumerate(tasks):
        if _of_sums(what):
            uses[int(graph.step[task]), what.owner, what.part is Part.RUNNING].append(task)

    def exchange(it: Pieces, step: int) -> Exchange:
        # Owner and kind of number identify what is added up.
        before = uses[step, it.owner, it.bytes == DOUBLES]
        return Exchange(
            it.owner,
            it.ends,
            it.bytes,
            after=tuple(sorted({maker for task in before for maker in makers[task]})),
            before=tuple(before),
            # What moves weights or running statistics: with `tree` rank 0 alone does so.
            moves=tuple(task for task in before if tasks[task].part in (Part.UPDATE, Part.RUNNING)),
            step=step,
        )

    return [[exchange(it, step) for it in layer] for step in range(STEPS) for layer in layers]


def urgent(graph: TaskGraph, strategy: Strategy, workers: int) -> list[int]:
    """Return the tasks that come first on a rank of so many workers."""
    tasks = enumerate(identities(graph))
    return [task for task, what in tasks if hastened(what, strategy, workers)]


def _makes(before: Identity, after: Identity) -> bool:
    """Return whether a task makes what another adds up over ranks, rather than only reading what that updates."""
    makes = before.serves in (Pass.WEIGHT, Pass.UPDATE) or before.kind is Kind.STATISTICS
    # Otherwise updates would count as makers of what they only read.
    return makes and _of_sums(after) and not _of_sums(before)


def _of_sums(what: Identity) -> bool:
    """Return whether a task needs gradients that are added up over all ranks."""
    return what.part in (Part.UPDATE, Part.NORM, Part.CLIP, Part.RUNNING)


def _wide(made: Made) -> TaskGraph:
    return made[max(made)][1].task_graph_for(MANY)


def _measured(made: Made) -> dict[int, Measured]:
    return {
        threads: Measured(
            profile.graph,
            [worker.events for worker in profile.workers],
            profile.updates,
            profile.seconds_per_update,
            profile.caller_seconds,
            available_cores(),
        )
        for threads, (profile, _) in made.items()
    }
