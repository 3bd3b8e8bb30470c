"""What a simulated machine would have recorded."""

import numpy as np

from znnpy.scheduler import EVENT
from znnpy.simulate import Measured, Replay, simulate


def recorded(graph, workers, machine, steps, scale=1.0):
    """A recording as a simulated machine would have left it, in nanoseconds."""
    outcome = simulate(Replay.of(graph), workers, machine, steps, log=graph.size * steps)
    task, worker, start = (outcome.log[:, column] for column in range(3))
    task = task.astype(int)
    events = []
    for own in range(workers):
        mine = np.flatnonzero(worker == own)
        rows = np.zeros(len(mine), EVENT)
        rows["task"] = task[mine]
        rows["start_ns"] = 1000 + np.round(start[mine] * 1e9)
        rows["end_ns"] = rows["start_ns"] + np.round(graph.cost[task[mine]] * scale * 1e9)
        events.append(rows)
    return Measured(graph, events, steps, outcome.seconds_per_step)
