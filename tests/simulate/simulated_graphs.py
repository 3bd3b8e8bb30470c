"""Task graphs without kernels, for the simulator's tests."""

import numpy as np

from znnpy.graph import GraphBuilder, Named, TaskGraph


def build(
    costs: list[float],
    edges: list[tuple[int, int]],
    copies: int = 1,
    policy: str = "critical-path",
    stages: list[int] | None = None,
) -> TaskGraph:
    """Tasks 0.. with these costs; sources wait for their step's phase, copies follow each other."""
    builder = GraphBuilder()
    size = len(costs)
    waiting = {after for _, after in edges}
    for step in range(copies):
        for task, cost in enumerate(costs):
            builder.task(
                0,
                [],
                Named(f"{step}.{task}"),
                cost=cost,
                phase=-1 if task in waiting else step,
                step=step,
                group=step,
                stage=stages[task] if stages else 0,
            )
        for before, after in edges:
            builder.precede(step * size + before, step * size + after)
    if copies == 2:
        for task in range(size):
            builder.precede(task, size + task)
            builder.precede(size + task, task, carried=True)
    return builder.build(policy)


def random_graph(seed: int, size: int, copies: int = 1) -> TaskGraph:
    """Random costs and forward edges."""
    rng = np.random.default_rng(seed)
    costs = rng.exponential(1e-4, size).tolist()
    edges = [
        (int(before), after)
        for after in range(1, size)
        for before in set(rng.integers(0, after, rng.integers(0, 4)).tolist())
    ]
    return build(costs, edges, copies, ["critical-path", "fifo", "lifo", "random"][seed % 4])
