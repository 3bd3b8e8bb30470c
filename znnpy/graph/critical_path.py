"""Longest paths, topological order and cycles of graphs whose edges are two arrays (before, after)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.scheduling.paths import longest_paths, topological_order

from znnpy.errors import ZnnpyError
from znnpy.graph.task_description import Described

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Edges = tuple[Ints, Ints]


class GraphError(ZnnpyError):
    """A task graph cannot run: a cycle without a token, or a task that nothing would ever start."""


def csr(edges: Edges, size: int) -> tuple[Ints, Ints]:
    """Return (starts, targets): the successors of each task in CSR form, in the order of the edges."""
    before, after = edges
    # Stable: the order of a task's successors is the order in which they get their tokens.
    order = np.argsort(before, kind="stable")
    starts = np.zeros(size + 1, np.int64)
    np.cumsum(np.bincount(before, minlength=size), out=starts[1:])
    return starts, after[order]


def topological(edges: Edges, size: int) -> Ints:
    """Return tasks in an order that respects the edges; fewer than `size` if there is a cycle."""
    return _ordered(*csr(edges, size), edges[1])


def _ordered(starts: Ints, targets: Ints, after: Ints) -> Ints:
    size = len(starts) - 1
    order, missing = np.empty(size, np.int64), np.bincount(after, minlength=size)
    return order[: topological_order(starts, targets, missing, order)]


def bottom_levels(edges: Edges, cost: Floats) -> Floats:
    """Return for each task its cost plus that of the costliest path behind it, in the unit of `cost`."""
    starts, targets = csr(edges, len(cost))
    order, level = _ordered(starts, targets, edges[1]), np.array(cost, np.float64)
    longest_paths(starts, targets, order, len(order), level)
    return level


def chain(edges: Edges, levels: Floats) -> list[int]:
    """Return the tasks of one longest path: from the highest level, always on to the highest successor."""
    if not len(levels):
        return []
    starts, targets = csr(edges, len(levels))
    path = [int(levels.argmax())]
    while len(following := targets[starts[path[-1]] : starts[path[-1] + 1]]):
        path.append(int(following[levels[following].argmax()]))
    return path


def refuse_cycle(edges: Edges, tasks: Sequence[Described]) -> None:
    """Raise a GraphError that names the tasks of one cycle, if there is any."""
    order = topological(edges, len(tasks))
    if len(order) == len(tasks):
        return
    cycle = _cycle(edges, set(range(len(tasks))) - set(order.tolist()))
    shown = [tasks[task].label for task in cycle]
    # A cycle through a whole step has thousands of tasks; six at each end show where it closes.
    if len(shown) > 12:
        shown = [*shown[:6], f"({len(shown) - 12} more)", *shown[-6:]]
    raise GraphError(
        f"the task graph has a cycle: {' -> '.join([*shown, shown[0]])}. "
        "No task of it could ever start; mark the edge from the previous step as carried."
    )


def _cycle(edges: Edges, left: set[int]) -> list[int]:
    """Return a cycle: walk backwards among tasks that never became ready until one comes up again."""
    previous = {
        after: before
        for before, after in zip(edges[0].tolist(), edges[1].tolist(), strict=True)
        if before in left and after in left
    }
    # Every task that is left has a predecessor that is left, so the walk never ends before it
    # repeats.
    task = next(iter(previous))
    seen: list[int] = []
    while task not in seen:
        seen.append(task)
        task = previous[task]
    # What was walked before the cycle is cut off; reversed, since the walk went backwards.
    return seen[seen.index(task) :][::-1]
