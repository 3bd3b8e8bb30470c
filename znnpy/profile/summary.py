"""The numbers of one profile: time by task and worker, losses, Brent's bound, critical path, grain."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from znnpy.engine.tasks.identity import Identity, identities
from znnpy.graph.paths import bottom_levels, chain
from znnpy.profile.exposed import summarise_messages
from znnpy.profile.layers import Layers
from znnpy.profile.levels import levels
from znnpy.profile.losses import LOSSES, Losses, find_losses
from znnpy.profile.timeline import Floats, Ints
from znnpy.profile.updates import Profile

SIZE_BOUNDS = [1e-6 * 10 ** (exponent / 5) for exponent in range(-5, 26)]
"""Seconds between the bars of the histogram of task sizes: five a decade, 0.1 us to 0.1 s."""
SMALLEST, LARGEST = 20e-6, 2e-3
"""Seconds that a task should take."""


def summarise(
    profile: Profile, flops: Mapping[Identity, float] | None = None, alone: Profile | None = None
) -> dict[str, Any]:
    """Figures of a profile, JSON-able; times in seconds, for one update unless they say otherwise.

    `work` (T1) is the time of all tasks, `span` (Tinf) that of the longest path, both by the median
    time of each task; `bound` Brent's T1 / P + Tinf (ZNN, arXiv 1510.06706). `flops`: operations of
    an update by task. `alone`: the same updates on one worker, to see how much slower tasks
    got beside others.
    """
    wall, workers = profile.seconds_per_update, len(profile.workers)
    costs, losses = typical_costs(profile), find_losses(profile)
    names, path = _names(profile, costs, flops or {}), _longest_path(profile, costs)
    waits = _total(losses).waited_for.items()
    waited = {name: seconds / profile.updates for name, seconds in waits}
    work, span = float(costs.sum()), sum(task["seconds"] for task in path)
    work_alone = None if alone is None else float(typical_costs(alone).sum())
    return {
        "threads": workers,
        "updates": profile.updates,
        "seconds": wall,
        "caller": profile.caller_seconds,
        "tasks": profile.tasks_per_update,
        "work": work,
        "work_alone": work_alone,
        "span": span,
        "bound": work / workers + span,
        "disturbance": _total(losses).busy / profile.updates / max(work, 1e-12),
        "policy": profile.graph.policy,
        "kinds": _kinds(names),
        "names": names,
        "workers": _workers(profile, losses),
        "losses": _lost(profile, losses, work_alone or work),
        "waited_for": _waited_for(waited),
        "levels": levels(profile.network, names, path, waited),
        "messages": summarise_messages(profile, _total(losses)),
        "sizes": _sizes(costs),
        "critical_path": path,
        "planned_bytes": profile.planned_bytes,
        "peak_bytes": max(size for _, size in profile.memory),
    }


class _Task(NamedTuple):
    what: Identity
    layer: str

    def told(self) -> dict[str, Any]:
        what = self.what
        return {"name": what.label, "kind": what.kind, "layer": self.layer, "pass": what.serves}


def typical_costs(profile: Profile) -> Floats:
    """Seconds of each task of a step: the median over all updates, so that disturbances do not count.

    Both copies of a step declare the same tasks in the same order.
    """
    times = profile.timeline
    copies = [np.flatnonzero(profile.graph.step == parity) for parity in range(times.copies)]
    runs = np.concatenate([times.seconds[:, tasks] for tasks in copies])
    return np.asarray(np.nanmedian(runs, axis=0), np.float64)


def step_edges(profile: Profile) -> tuple[Ints, Ints]:
    """(before, after) of one step, tasks numbered as in `typical_costs`."""
    graph = profile.graph
    before, after = graph.edges(carried=False)
    within = (graph.step[before] == 0) & (graph.step[after] == 0)
    number = np.cumsum(graph.step == 0) - 1
    return number[before[within]], number[after[within]]


def _tasks(profile: Profile) -> list[_Task]:
    """The tasks of one step, in the order of `typical_costs`."""
    found, layers = identities(profile.graph), Layers(profile.network)
    return [
        _Task(found[task], layers.of(found[task]))
        for task in np.flatnonzero(profile.graph.step == 0).tolist()
    ]


def _longest_path(profile: Profile, costs: Floats) -> list[dict[str, Any]]:
    """The tasks of the longest path of one step."""
    edges, tasks = step_edges(profile), _tasks(profile)
    path = chain(edges, bottom_levels(edges, costs))
    return [{**tasks[task].told(), "seconds": float(costs[task])} for task in path]


def _names(
    profile: Profile, costs: Floats, flops: Mapping[Identity, float]
) -> list[dict[str, Any]]:
    """One entry for all tasks that are the same, in the order in which they are declared."""
    seconds: dict[_Task, float] = defaultdict(float)
    count: Counter[_Task] = Counter()
    for task, spent in zip(_tasks(profile), costs.tolist(), strict=True):
        seconds[task] += spent
        count[task] += 1
    return [
        {**task.told(), "tasks": count[task], "seconds": spent, "flops": flops.get(task.what)}
        for task, spent in seconds.items()
    ]


def _kinds(names: list[dict[str, Any]]) -> dict[str, float]:
    """Seconds of an update by kind of task, the largest first."""
    kinds: dict[str, float] = defaultdict(float)
    for entry in names:
        kinds[entry["kind"]] += entry["seconds"]
    return dict(sorted(kinds.items(), key=lambda item: -item[1]))


def _workers(profile: Profile, losses: list[Losses]) -> list[dict[str, Any]]:
    whole = (profile.end_ns - profile.start_ns) * 1e-9
    return [
        {
            "busy": found.busy / whole,
            "dispatch": found.causes["dispatch"] / whole,
            "searching": found.searching / whole,
            "parked": found.parked / whole,
            "tasks": worker.executed,
            "steals": worker.steals,
            "failed_steals": worker.failed_steals,
            "parks": worker.parks,
            "parked_seconds": worker.parked_ns * 1e-9,
        }
        for worker, found in zip(profile.workers, losses, strict=True)
    ]


def _lost(profile: Profile, losses: list[Losses], undisturbed: float) -> dict[str, float]:
    """Seconds of all workers for one update: in tasks as on one worker, and lost to each cause."""
    total = _total(losses)
    busy = total.busy / profile.updates
    useful = min(busy, undisturbed)
    causes = [cause for cause in LOSSES if cause != "messages" or profile.messages]
    lost = {cause: total.causes[cause] / profile.updates for cause in causes}
    return {"tasks": useful, "slower tasks": busy - useful, **lost}


def _total(losses: list[Losses]) -> Losses:
    total = Losses()
    for found in losses:
        total.add(found)
    return total


def _waited_for(waited: Mapping[str, float]) -> list[dict[str, Any]]:
    found = sorted(waited.items(), key=lambda item: -item[1])
    return [{"name": name, "seconds": seconds} for name, seconds in found[:10]]


def _sizes(costs: Floats) -> dict[str, Any]:
    """Histogram of the lengths of tasks: how many of an update, and how much of its time."""
    places, bars = np.searchsorted(SIZE_BOUNDS, costs), len(SIZE_BOUNDS) + 1
    work = max(float(costs.sum()), 1e-12)
    return {
        "bounds": SIZE_BOUNDS,
        "tasks": np.bincount(places, minlength=bars).tolist(),
        "seconds": np.bincount(places, costs, bars).tolist(),
        "median": float(np.median(costs)) if len(costs) else 0.0,
        "small": float(costs[costs < SMALLEST].sum()) / work,
        "large": float(costs[costs > LARGEST].sum()) / work,
    }
