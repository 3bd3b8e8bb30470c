"""Recorded runs handed to the simulator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from znnpy.engine import Model
from znnpy.graph import TaskGraph
from znnpy.profile.updates import Profile
from znnpy.scheduler.cores import available_cores
from znnpy.simulate import Measured, compare_policies, simulate_profile

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
