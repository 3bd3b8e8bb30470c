"""Grain of a plan: the share of time that scheduling costs, and how many workers its tasks keep busy."""

from __future__ import annotations

from typing import Any

import numpy as np

from znnpy.graph.critical_path import bottom_levels, chain
from znnpy.simulate.replay import Machine, Replay

# Brent: T(P) <= T1 / P + Tinf, so with T1 / Tinf = 4 P a quarter more than T1 / P.
SLACK = 4.0
"""T1 / Tinf for each worker: as much gives a speed-up within a quarter of a perfect one, by Brent's bound."""


def grain(replay: Replay, machine: Machine, workers: int) -> dict[str, Any]:
    """Return the grain of a plan as a JSON-able dict; times in seconds.

    `overhead`: dispatch of every task and a steal of every second one, as a share of T1. `parallelism`: T1 / Tinf of
    one step. `enough_for`: the number of workers of which that is SLACK times as much. `critical`: the longest path
    by name of task, the costliest first.
    """
    # Medians over runs: an interrupted run must not become the longest path.
    graph, costs = replay.graph, np.median(replay.costs, axis=0)
    copies = int(graph.step.max()) + 1
    before, after = graph.edges(carried=False)
    # Edges within a step alone: carried ones would make a path without end.
    inside = graph.step[before] == graph.step[after]
    edges = before[inside], after[inside]
    levels = bottom_levels(edges, costs)
    path: dict[str, float] = {}
    for task in chain(edges, levels):
        path[graph.names[task]] = path.get(graph.names[task], 0.0) + float(costs[task])
    work, span = float(costs.sum()) / copies, float(levels.max())
    dispatch = machine.dispatch * graph.size + machine.successor * len(graph.successors)
    parallelism = work / span if span > 0 else 1.0
    return {
        "tasks": graph.size // copies,
        "median_task": float(np.median(costs)),
        "largest_task": float(costs.max()),
        # Never divided by 0; a plan without work has no share.
        "overhead": (dispatch + machine.steal * graph.size / 2) / max(costs.sum(), 1e-12),
        "parallelism": parallelism,
        "workers": workers,
        "enough_for": int(parallelism / SLACK),
        # Five names tell where the path is.
        "critical": sorted(path.items(), key=lambda item: -item[1])[:5],
    }
