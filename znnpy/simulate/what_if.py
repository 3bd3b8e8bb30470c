"""What would help: updates simulated with a kind of task twice as fast, and with a layer's tasks halved.

A kind that takes much of the time but does not bound an update brings little (as in Coz, Curtsinger and Berger 2015,
and TaskProf, Yoga and Nagarakatte 2017).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.graph import BARRIER, GraphBuilder, TaskGraph
from znnpy.graph.critical_path import bottom_levels, chain
from znnpy.simulate.memory import Memory
from znnpy.simulate.replay import Machine, Replay
from znnpy.simulate.run import simulate
from znnpy.simulate.speedup_curve import prepare

NOTABLE = 0.02
"""Share of the work from which on a kind is tried; layers are, from that share of the critical path on."""
MOST_LAYERS = 8


def what_if(
    replay: Callable[[int], Replay],
    on: Callable[[int], Machine],
    layers: Callable[[TaskGraph], Sequence[str]],
    workers: Sequence[int],
    steps: int = 10,
    memory: Memory | None = None,
    seed: int = 0,
    caller: float = 0.0,
) -> dict[str, Any]:
    """Return the seconds of an update on each of `workers` as it is, and with one change each, JSON-able.

    `replay`, `on`, `caller`: as for `curve`, whose time of an update as it is this is. `layers` names the layer of each
    task of a graph. A kind that is twice as fast moves as many bytes. Halves of a
    task wait for what it waited for, share its bytes, and are both waited for.
    """
    found: dict[str, Any] = {"workers": list(workers), "seconds": [], "changes": []}
    kinds: dict[str, list[float]] = {}
    parts: dict[str, list[float]] = {}
    for count in workers:
        ready = prepare(replay(count), on(count), count, steps, seed, memory)
        own, machine = ready.replay, ready.machine

        def seconds(changed: Replay, count: int = count, machine: Machine = machine) -> float:
            return max(simulate(changed, count, machine, steps, seed).seconds_per_step, caller)

        found["seconds"].append(seconds(own))
        names = np.array(own.graph.kinds)
        # Those of the first number for all of them, so that rows are complete.
        for kind in list(kinds) or _notable(names, own.costs.mean(axis=0)):
            fast = replace(own, costs=own.costs * np.where(names == kind, 0.5, 1.0))
            kinds.setdefault(kind, []).append(seconds(fast))
        of = np.array(layers(own.graph))
        for layer in list(parts) or _on_path(own, of):
            parts.setdefault(layer, []).append(seconds(halved(own, of == layer)))
    for change, rows in (("kind", kinds), ("layer", parts)):
        found["changes"] += [
            {"change": change, "name": name, "seconds": times} for name, times in rows.items()
        ]
    return found


def _notable(names: NDArray[np.str_], costs: NDArray[np.float64]) -> list[str]:
    """Return the kinds that take a notable part of the work, the most first."""
    spent = {str(kind): float(costs[names == kind].sum()) for kind in np.unique(names)}
    many = [kind for kind, seconds in spent.items() if seconds > NOTABLE * costs.sum()]
    return sorted(many, key=lambda kind: -spent[kind])


def _on_path(replay: Replay, layers: NDArray[np.str_]) -> list[str]:
    """Return the layers that take a notable part of the critical path, the most first."""
    costs, graph = np.median(replay.costs, axis=0), replay.graph
    before, after = graph.edges(carried=False)
    inside = graph.step[before] == graph.step[after]
    edges = before[inside], after[inside]
    spent: dict[str, float] = {}
    for task in chain(edges, bottom_levels(edges, costs)):
        spent[str(layers[task])] = spent.get(str(layers[task]), 0.0) + float(costs[task])
    many = [layer for layer, seconds in spent.items() if seconds > NOTABLE * sum(spent.values())]
    return sorted(many, key=lambda layer: -spent[layer])[:MOST_LAYERS]


def halved(replay: Replay, chosen: NDArray[np.bool_]) -> Replay:
    """Return the replay with two tasks, each of half the time and bytes, in place of each chosen one that works."""
    graph = replay.graph
    builder = GraphBuilder.of(graph)
    recorded = sum(task != BARRIER for task in graph.tasks)
    split = [t for t in np.flatnonzero(chosen[:recorded]).tolist() if not graph.tasks[t].waits]
    # Behind all recorded tasks, so that their numbers stay.
    other = np.full(recorded, -1)
    for task in split:
        other[task] = builder.like(graph, task, share=0.5)
    for carried in (False, True):
        before, after = graph.edges(carried=carried)
        inside = (before < recorded) & (after < recorded)
        before, after = before[inside], after[inside]
        for one, two in (
            (other[before], after),
            (before, other[after]),
            (other[before], other[after]),
        ):
            there = (one >= 0) & (two >= 0)
            builder.connect(one[there], two[there], carried=carried)
    made = builder.build(graph.policy)
    source = np.concatenate([np.arange(recorded), np.array(split, np.int64)])
    share = np.ones(len(source))
    share[split], share[recorded:] = 0.5, 0.5
    costs, (shares, traffic) = np.zeros((len(replay.costs), made.size)), np.zeros((2, made.size))
    costs[:, : len(source)] = replay.costs[:, source] * share
    shares[: len(source)] = replay.shares[source]
    traffic[: len(source)] = replay.traffic[source] * share
    return Replay(made, costs, shares, traffic)
