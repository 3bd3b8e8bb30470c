"""Recorded runs handed to the simulator."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from znnpy.engine import Model
from znnpy.engine.tasks.identity import Identity, Part, Pass, identities
from znnpy.graph import TaskGraph
from znnpy.network import Network
from znnpy.network.parameters import parameter_shapes
from znnpy.profile.updates import Profile
from znnpy.scheduler.cores import available_cores
from znnpy.simulate import (
    Exchange,
    Links,
    Measured,
    compare_policies,
    simulate_profile,
    simulate_scaling,
)

MANY = 64
"""Workers for which the graph beyond the measured thread counts is declared."""
Made = Mapping[int, tuple[Profile, Model]]
"""Profiles and their models (closed) by number of threads."""


def simulate_runs(made: Made) -> dict[str, Any]:
    """`simulation` and `grain` of a summary."""
    return simulate_profile(_measured(made), _wide(made))


def simulate_policies(made: Made, seconds: Mapping[str, float]) -> list[dict[str, Any]]:
    """`policies` of a summary: measured seconds by policy, and simulated ones beside them."""
    return compare_policies(_measured(made), _wide(made), seconds)


def simulate_ranks(made: Made, ranks: Sequence[int], links: Links) -> dict[str, Any]:
    """`ranks` of a summary: every rank computes what was recorded, and they add up gradients."""
    network = made[max(made)][0].network
    return simulate_scaling(_measured(made), lambda graph: exchanges(graph, network), ranks, links)


def exchanges(graph: TaskGraph, network: Network) -> list[Exchange]:
    """What ranks add up: each parameter's gradient, in the order in which gradients are complete."""
    tasks, shapes = identities(graph), parameter_shapes(network)
    edges = [pair.tolist() for pair in graph.edges(carried=False)]
    makers = defaultdict(set)
    for before, after in zip(*edges, strict=True):
        made = tasks[before].serves in (Pass.WEIGHT, Pass.UPDATE) and not _of_sums(tasks[before])
        if made and _of_sums(tasks[after]):
            makers[after].add(before)
    uses = defaultdict(list)
    for task, what in enumerate(tasks):
        if _of_sums(what) and what.owner in shapes:
            uses[int(graph.step[task]), what.owner].append(task)
    found = []
    for (step, name), before in uses.items():
        moves = tuple(task for task in before if tasks[task].part is Part.UPDATE)
        after = {maker for task in before for maker in makers[task]}
        if moves:
            size = 4 * prod(shapes[name])
            found.append(Exchange(size, tuple(sorted(after)), tuple(before), moves, step))
    return sorted(found, key=lambda it: max(it.after))


def _of_sums(what: Identity) -> bool:
    """Whether a task needs gradients that are added up over all ranks."""
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
