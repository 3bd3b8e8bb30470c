"""Topological order and longest paths of task graphs whose successors lie in CSR form."""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.native import native

LIST, FLOATS = "int64[::1]", "float64[::1]"


@native(f"int64({LIST},{LIST},{LIST},{LIST})")
def topological_order(starts: Any, targets: Any, missing: Any, order: Any) -> int:
    """Write tasks in an order that respects the edges; return how many: fewer than all if there is a cycle.

    targets[starts[t] : starts[t + 1]]: the successors of task t. missing: predecessors of each task, counted down to 0.
    """
    count = 0
    for task in range(len(missing)):
        if missing[task] == 0:
            order[count] = task
            count += 1
    done = 0
    # The list grows while it is walked: it is the queue of Kahn's algorithm.
    while done < count:
        task = order[done]
        done += 1
        for place in range(starts[task], starts[task + 1]):
            target = targets[place]
            missing[target] -= 1
            if missing[target] == 0:
                order[count] = target
                count += 1
    return count


@native(f"void({LIST},{LIST},{LIST},int64,{FLOATS})")
def longest_paths(starts: Any, targets: Any, order: Any, count: int, level: Any) -> None:
    """Add to each task's cost, which `level` has at first, that of the costliest path behind it.

    order: the first `count` are tasks in topological order.
    """
    # Backwards, successors come first: their levels are final.
    for place in range(count - 1, -1, -1):
        task = order[place]
        longest = 0.0
        for number in range(starts[task], starts[task + 1]):
            longest = max(longest, level[targets[number]])
        level[task] += longest
