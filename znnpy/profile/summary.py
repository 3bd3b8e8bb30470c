"""Summarises one profile: time by task, layer, level and worker, losses, Brent's bound, critical path, messages.

A layer is the row of the report that counts a task (`Layers`). A level is what has the same distance between voxels,
in input voxels: of a U-Net, the way down and the way up at one resolution. For messages it counts how long
workers had to wait for them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from znnpy.engine.tasks.task_identity import Identity, Part, Pass, identities
from znnpy.geometry.axes import describe
from znnpy.geometry.receptive_field import lattice_of
from znnpy.graph.critical_path import bottom_levels, chain
from znnpy.network.types import Edge, Network
from znnpy.profile.lost_time import LOSSES, Losses, find_losses
from znnpy.profile.recorded_updates import Profile
from znnpy.profile.timeline import Floats, Ints

# What no layer has for itself: sums of losses, clipping, barriers.
ALL = "all layers"

Entries = Iterable[Mapping[str, Any]]
SIZE_BOUNDS = [1e-6 * 10 ** (exponent / 5) for exponent in range(-5, 26)]
"""Bounds in seconds of the bars of the histogram of task sizes: five a decade, 0.1 us to 0.1 s."""
# Far above what a dispatch costs (README of `znnpy/scheduler`), and so short that no worker waits long for a single
# task: an update should hold tens of them for each worker.
SMALLEST, LARGEST = 20e-6, 2e-3
"""Seconds that a task should take at least and at most."""


class Layers:
    """Finds the layer of each task in one network. Tasks of a node go to its only edge, else to the node itself."""

    def __init__(self, network: Network) -> None:
        self._into = {node.name: _only(network.incoming(node.name)) for node in network.nodes}
        self._from = {node.name: _only(network.outgoing(node.name)) for node in network.nodes}

    def of(self, task: Identity) -> str:
        """Return the name of the edge or node; ALL for tasks of the whole network."""
        if task.owner is None:
            return ALL
        near = self._from if _of_what_follows(task) else self._into
        # A node with several edges is its own row.
        return near.get(task.owner) or task.owner


def _of_what_follows(task: Identity) -> bool:
    """Return whether a task is made of a node for the edges that leave it."""
    if task.part is Part.INVERSE:
        return task.serves is Pass.BACKWARD
    return task.part in (Part.IMAGE_SPECTRA, Part.KEPT_TILES)


def _only(edges: tuple[Edge, ...]) -> str | None:
    return edges[0].name if len(edges) == 1 else None


def levels(
    network: Network, names: Entries, path: Entries, waited_for: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Return figures of each level, the finest first, JSON-able; none where all voxels lie equally far apart.

    Of `names` and `path`, entries with the `layer` and `seconds` of tasks; `waited_for`: idle seconds by
    the name of tasks. `stride`: z, y, x; `first`, `last`: layers in the order of the data; `work`, `path`,
    `waited_for` in seconds; `width`: work / path, the workers that the level alone keeps busy.
    """
    strides = _strides(network)
    # With one level there is nothing to compare.
    if len(set(strides.values())) < 2:
        return []
    found: dict[Any, dict[str, Any]] = {}
    layer_of = {entry["name"]: entry["layer"] for entry in names}
    waits = [{"layer": layer_of.get(n, ""), "seconds": s} for n, s in waited_for.items()]
    for key, entries in (("work", names), ("path", path), ("waited_for", waits)):
        for entry in entries:
            if (stride := strides.get(entry["layer"])) is not None:
                level = found.setdefault(stride, dict.fromkeys(("work", "path", "waited_for"), 0.0))
                level[key] += entry["seconds"]
    ends = _ends(network, strides)
    return [
        {
            "stride": describe(stride),
            **dict(zip(("first", "last"), ends[stride], strict=True)),
            **found[stride],
            "width": found[stride]["work"] / max(found[stride]["path"], 1e-12),
        }
        for stride in sorted(found)
    ]


def _strides(network: Network) -> dict[str, Any]:
    """Return strides by node, and by edge those of its target."""
    nodes = dict(lattice_of(network).strides)
    return nodes | {edge.name: nodes[edge.target] for edge in network.edges}


def _ends(network: Network, strides: Mapping[str, Any]) -> dict[Any, tuple[str, str]]:
    """Return the first and the last node of each level."""
    found: dict[Any, tuple[str, str]] = {}
    for node in network.nodes:
        # Inputs have no tasks: a level begins with what is computed.
        if node.kind != "input":
            first, _ = found.get(strides[node.name], (node.name, ""))
            found[strides[node.name]] = first, node.name
    return found


def summarise_messages(profile: Profile, losses: Losses) -> dict[str, Any] | None:
    """Return `messages` of a run, JSON-able, for one update; None where nothing was sent.

    `exposed`: seconds for which workers had nothing to do until a message came, of all workers by their
    number; by layer and by update too. `under_way`: seconds with any message from post to arrival.
    """
    if not profile.messages:
        return None
    workers, updates = len(profile.workers), profile.updates
    found, layers = identities(profile.graph), Layers(profile.network)
    by_layer: dict[str, float] = defaultdict(float)
    by_update = [0.0] * updates
    for (update, task), seconds in losses.exposed.items():
        by_layer[layers.of(found[task])] += seconds / workers / updates
        # What is exposed behind the last update counts there.
        by_update[min(update, updates - 1)] += seconds / workers
    return {
        "exposed": sum(by_layer.values()),
        "by_layer": dict(sorted(by_layer.items(), key=lambda item: -item[1])),
        "by_update": by_update,
        "under_way": _covered([(it.posted, it.arrived) for it in profile.messages]) / updates,
        "count": len(profile.messages) / updates,
        "bytes": {
            way: sum(it.bytes for it in profile.messages if it.way == way) / updates
            for way in sorted({it.way for it in profile.messages})
        },
    }


def _covered(spans: Sequence[tuple[int, int]]) -> float:
    """Return the seconds within any of the spans, given in nanoseconds."""
    total, reached = 0, 0
    for low, high in sorted(spans):
        total += max(0, high - max(low, reached))
        # Sorted by their begin: only what lies beyond the furthest end so far is new.
        reached = max(reached, high)
    return total * 1e-9


def summarise(
    profile: Profile, flops: Mapping[Identity, float] | None = None, alone: Profile | None = None
) -> dict[str, Any]:
    """Return the figures of a profile, JSON-able; times in seconds, for one update unless they say otherwise.

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
        # By medians, so it may lie below the time of a disturbed run.
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
    """Return the seconds of each task of a step: the median over all updates, so that disturbances do not count.

    Both copies of a step declare the same tasks in the same order.
    """
    times = profile.timeline
    copies = [np.flatnonzero(profile.graph.step == parity) for parity in range(times.copies)]
    # Runs of both copies as runs of one step: their tasks are declared alike.
    runs = np.concatenate([times.seconds[:, tasks] for tasks in copies])
    return np.asarray(np.nanmedian(runs, axis=0), np.float64)


def step_edges(profile: Profile) -> tuple[Ints, Ints]:
    """Return (before, after) of one step, tasks numbered as in `typical_costs`."""
    graph = profile.graph
    before, after = graph.edges(carried=False)
    within = (graph.step[before] == 0) & (graph.step[after] == 0)
    number = np.cumsum(graph.step == 0) - 1
    return number[before[within]], number[after[within]]


def _tasks(profile: Profile) -> list[_Task]:
    """Return the tasks of one step, in the order of `typical_costs`."""
    found, layers = identities(profile.graph), Layers(profile.network)
    return [
        _Task(found[task], layers.of(found[task]))
        for task in np.flatnonzero(profile.graph.step == 0).tolist()
    ]


def _longest_path(profile: Profile, costs: Floats) -> list[dict[str, Any]]:
    """Return the tasks of the longest path of one step."""
    edges, tasks = step_edges(profile), _tasks(profile)
    path = chain(edges, bottom_levels(edges, costs))
    return [{**tasks[task].told(), "seconds": float(costs[task])} for task in path]


def _names(
    profile: Profile, costs: Floats, flops: Mapping[Identity, float]
) -> list[dict[str, Any]]:
    """Return one entry for all like tasks, in the order in which they are declared."""
    seconds: dict[_Task, float] = defaultdict(float)
    count: Counter[_Task] = Counter()
    for task, spent in zip(_tasks(profile), costs.tolist(), strict=True):
        seconds[task] += spent
        count[task] += 1
    return [
        {
            **task.told(),
            "passes": 2 if task.what.part is Part.BOTH else 1,
            "tasks": count[task],
            "seconds": spent,
            "flops": flops.get(task.what),
        }
        for task, spent in seconds.items()
    ]


def _kinds(names: list[dict[str, Any]]) -> dict[str, float]:
    """Return the seconds of an update by kind of task, the largest first."""
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
    """Return the seconds of all workers for one update: in tasks as on one worker, and lost to each cause."""
    total = _total(losses)
    busy = total.busy / profile.updates
    # No more than one worker's time: tasks may be faster beside others, by caches.
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
    # Ten names: what follows is noise.
    return [{"name": name, "seconds": seconds} for name, seconds in found[:10]]


def _sizes(costs: Floats) -> dict[str, Any]:
    """Return a histogram of the lengths of tasks: how many of an update, and how much of its time."""
    # A bar more at each end, for what lies outside the bounds.
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
