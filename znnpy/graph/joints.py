"""Finds where all of some tasks precede all of others: a task between them takes m + n edges in place of m * n.

Each edge is a token: an access to the counter of another task, in a cache line that other cores write as well.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from znnpy.graph.critical_path import Edges

Ints = NDArray[np.int64]
SAVES = 2
"""How many times as many edges there must be without a task between: it is one more that others wait for."""


class Joint(NamedTuple):
    """Tasks of which each of `before` precedes each of `after`."""

    before: Ints
    after: Ints


def joints(edges: Edges, tasks: int) -> tuple[list[Joint], NDArray[np.bool_]]:
    """Return joints that share no edge, and whether each edge is left; `edges`: each once, of so many tasks.

    First those of tasks that wait for the same ones, then those of tasks that the same ones wait for.
    """
    left = np.ones(len(edges[0]), bool)
    found = []
    for near, far in ((1, 0), (0, 1)):
        for own in _alike(edges[near], edges[far], left, tasks):
            joint = Joint(np.unique(edges[0][own]), np.unique(edges[1][own]))
            if len(own) >= SAVES * (len(joint.before) + len(joint.after)):
                found.append(joint)
                left[own] = False
    return found, left


def _alike(of: Ints, others: Ints, left: NDArray[np.bool_], tasks: int) -> list[Ints]:
    """Return the edges that are left, by number, of each set of tasks `of` that share all `others`, if they suffice."""
    kept = np.flatnonzero(left)
    # Told by sums of random numbers: two sets of others have the same one in 2^64.
    numbers = np.random.default_rng(0).integers(1, 1 << 63, tasks, dtype=np.uint64)
    sums = np.zeros(tasks, np.uint64)
    np.add.at(sums, of[kept], numbers[others[kept]])
    order = kept[np.argsort(sums[of[kept]], kind="stable")]
    bounds = np.flatnonzero(np.diff(sums[of[order]])) + 1
    ends = [0, *bounds.tolist(), len(order)]
    # m * n >= SAVES * (m + n) asks for 4 * SAVES^2 edges: most sets have fewer, and are not looked at.
    return [order[low:high] for low, high in pairwise(ends) if high - low >= 4 * SAVES**2]
