"""Where the time of an update goes: by worker, by kind of task, and against Brent's bound."""

from __future__ import annotations

from typing import Any

import numpy as np

from znnpy.graph.paths import bottom_levels
from znnpy.profile.updates import Profile


def summarise(profile: Profile) -> dict[str, Any]:
    """Figures of a profile, JSON-able; times in seconds, for one update unless they say otherwise.

    `work` (T1) is the measured time of all tasks, `span` (Tinf) that of the longest path, `bound`
    Brent's T1 / P + Tinf (ZNN, arXiv 1510.06706). Idle time includes looking for work and parking.
    """
    wall = profile.seconds_per_update
    durations = [_durations(worker.events) for worker in profile.workers]
    costs = _mean_costs(profile)
    work = float(sum(d.sum() for d in durations)) / profile.updates
    span = _span(profile, costs)
    workers = len(profile.workers)
    return {
        "updates": profile.updates,
        "seconds": wall,
        "tasks": profile.graph.size // 2,
        "work": work,
        "span": span,
        "bound": work / workers + span,
        "speedup": work / wall,
        "kinds": _by_kind(profile, costs),
        "workers": [
            {
                "busy": float(d.sum()) / profile.updates / wall,
                "tasks": worker.executed,
                "steals": worker.steals,
                "failed_steals": worker.failed_steals,
                "parks": worker.parks,
                "parked_seconds": worker.parked_ns * 1e-9,
            }
            for worker, d in zip(profile.workers, durations, strict=True)
        ],
    }


def _durations(events: np.ndarray) -> np.ndarray:
    return np.asarray((events["end_ns"] - events["start_ns"]) * 1e-9)


def _mean_costs(profile: Profile) -> np.ndarray:
    """Mean seconds of every task; both steps have the same tasks in the same order."""
    total = np.zeros(profile.graph.size)
    count = np.zeros(profile.graph.size)
    for worker in profile.workers:
        np.add.at(total, worker.events["task"], _durations(worker.events))
        np.add.at(count, worker.events["task"], 1)
    return total / np.maximum(count, 1)


def _span(profile: Profile, costs: np.ndarray) -> float:
    """Longest path of one step by measured costs."""
    graph = profile.graph
    before, after = graph.edges(carried=False)
    within = graph.step[before] == graph.step[after]
    return float(bottom_levels((before[within], after[within]), costs).max(initial=0.0))


def _by_kind(profile: Profile, costs: np.ndarray) -> dict[str, float]:
    """Seconds of an update by kind of task, the largest first."""
    kinds: dict[str, float] = {}
    for kind, cost in zip(profile.graph.kinds, costs, strict=True):
        kinds[kind] = kinds.get(kind, 0.0) + float(cost) / 2
    return dict(sorted(kinds.items(), key=lambda item: -item[1]))
