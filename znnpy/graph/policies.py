"""Scheduling policies: order tasks by urgency (critical path, distance, FIFO, ...), as priorities and bands."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from znnpy.graph.critical_path import Edges, GraphError, bottom_levels

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

BANDS = 4
"""Deques per worker, one for each band of priorities. More make a thief's search longer; fewer blur the priorities."""


def critical_path(edges: Edges, cost: Floats) -> Floats:
    """Return the seconds of the longest path from each task to a sink (its bottom level)."""
    return bottom_levels(edges, cost)


def distance(edges: Edges, cost: Floats) -> Floats:
    """Return the number of tasks on the longest path to a sink, as ZNN orders by depth (arXiv 1510.06706)."""
    return bottom_levels(edges, np.ones_like(cost))


def fifo(edges: Edges, cost: Floats) -> Floats:
    """Return priorities by which tasks that were added first are the most urgent."""
    return -np.arange(len(cost), dtype=np.float64)


def lifo(edges: Edges, cost: Floats) -> Floats:
    """Return priorities by which tasks that were added last are the most urgent."""
    return np.arange(len(cost), dtype=np.float64)


def random(edges: Edges, cost: Floats) -> Floats:
    """Return a fixed random order, the baseline for the other policies."""
    # The seed is fixed: runs that are compared must differ in the policy alone.
    return np.random.default_rng(0).permutation(len(cost)).astype(np.float64)


def layers(edges: Edges, cost: Floats) -> Floats:
    """Return the order of declaration; barriers keep each stage (a layer and pass) behind the one before.

    So frameworks run: a parallel loop and a barrier for each operation. The builder adds the barriers, as tasks.
    """
    return fifo(edges, cost)


# The first one is the default; the others are what it is compared with (docs/design/inference.md,
# "Tried and left").
POLICIES: dict[str, Callable[[Edges, Floats], Floats]] = {
    "critical-path": critical_path,
    "distance": distance,
    "fifo": fifo,
    "lifo": lifo,
    "random": random,
    "layers": layers,
}


def priorities(policy: str, edges: Edges, cost: Floats) -> Floats:
    """Return the priority of each task, larger is more urgent; `edges`: those of one step, not carried."""
    if policy not in POLICIES:
        raise GraphError(f"unknown policy {policy!r}; known are {', '.join(POLICIES)}")
    return POLICIES[policy](edges, cost)


def bands(priority: Floats, urgent: NDArray[np.bool_]) -> Ints:
    """Return the band of each task: the range of priorities cut into BANDS equal parts, 0 the most urgent.

    If any task is `urgent`, these have the first band to themselves, so that no other task of a deque precedes them.
    """
    # Without urgent tasks all bands serve the others.
    first = int(urgent.any())
    low, high = priority.min(initial=np.inf), priority.max(initial=-np.inf)
    # No tasks, or all alike (also NaN): one band, and no division by 0.
    if not high > low:
        return np.where(urgent, 0, first)
    count = BANDS - first
    part: Ints = ((high - priority) * (count / (high - low))).astype(np.int64)
    # The least urgent task would fall just beyond the last band.
    return np.where(urgent, 0, first + part.clip(max=count - 1))
