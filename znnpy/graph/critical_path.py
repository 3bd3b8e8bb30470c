"""Longest paths, topological order and cycles of graphs whose edges are two arrays (before, after)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

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


def topological(edges: Edges, size: int) -> list[int]:
    """Return tasks in an order that respects the edges; fewer than `size` if there is a cycle."""
    starts, targets = (array.tolist() for array in csr(edges, size))
    missing = np.bincount(edges[1], minlength=size).tolist()
    order = [task for task in range(size) if missing[task] == 0]
    # The list grows while it is walked: it serves as the queue of Kahn's algorithm.
    for task in order:
        for target in targets[starts[task] : starts[task + 1]]:
            missing[target] -= 1
            if missing[target] == 0:
                order.append(target)
    return order


def bottom_levels(edges: Edges, cost: Floats) -> Floats:
    """Return for each task its cost plus that of the costliest path behind it, in the unit of `cost`."""
    size = len(cost)
    starts, targets = (array.tolist() for array in csr(edges, size))
    level: list[float] = cost.tolist()
    for task in reversed(topological(edges, size)):
        following = targets[starts[task] : starts[task + 1]]
        # Successors come first in this order, so their levels are final.
        level[task] += max((level[target] for target in following), default=0.0)
    return np.array(level, np.float64)


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
    cycle = _cycle(edges, set(range(len(tasks))) - set(order))
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
