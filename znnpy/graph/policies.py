"""Policies: how urgent each task is. They set priorities and bands, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from znnpy.graph.critical_path import Edges, bottom_levels
from znnpy.graph.errors import GraphError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

BANDS = 4
"""Deques per worker. More make a thief's search longer; fewer blur the priorities."""


def critical_path(edges: Edges, cost: Floats) -> Floats:
    """Seconds of the longest path from the task to a sink (its bottom level)."""
    return bottom_levels(edges, cost)


def distance(edges: Edges, cost: Floats) -> Floats:
    """Number of tasks on the longest path to a sink, as ZNN orders by depth (arXiv 1510.06706)."""
    return bottom_levels(edges, np.ones_like(cost))


def fifo(edges: Edges, cost: Floats) -> Floats:
    """Tasks that were added first are the most urgent."""
    return -np.arange(len(cost), dtype=np.float64)


def lifo(edges: Edges, cost: Floats) -> Floats:
    """Tasks that were added last are the most urgent."""
    return np.arange(len(cost), dtype=np.float64)


def random(edges: Edges, cost: Floats) -> Floats:
    """A fixed random order: what the other policies have to beat."""
    return np.random.default_rng(0).permutation(len(cost)).astype(np.float64)


def layers(edges: Edges, cost: Floats) -> Floats:
    """In the order of declaration, and nothing of a layer and pass before all of the one before.

    What frameworks do: a parallel loop and a barrier for each operation. The barriers are tasks
    that the builder adds.
    """
    return fifo(edges, cost)


POLICIES: dict[str, Callable[[Edges, Floats], Floats]] = {
    "critical-path": critical_path,
    "distance": distance,
    "fifo": fifo,
    "lifo": lifo,
    "random": random,
    "layers": layers,
}


def priorities(policy: str, edges: Edges, cost: Floats) -> Floats:
    """Larger is more urgent; `edges` are those of one step that are not carried."""
    if policy not in POLICIES:
        raise GraphError(f"unknown policy {policy!r}; known are {', '.join(POLICIES)}")
    return POLICIES[policy](edges, cost)


def bands(priority: Floats, urgent: NDArray[np.bool_]) -> Ints:
    """Cut the range of priorities into BANDS equal parts; 0 is the most urgent.

    What is `urgent` has the first band for itself, so that nothing else of its deque lies before it.
    """
    first = int(urgent.any())
    low, high = priority.min(initial=np.inf), priority.max(initial=-np.inf)
    if not high > low:
        return np.where(urgent, 0, first)
    count = BANDS - first
    part: Ints = ((high - priority) * (count / (high - low))).astype(np.int64)
    return np.where(urgent, 0, first + part.clip(max=count - 1))
