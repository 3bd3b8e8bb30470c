"""The simulated loop: any number of processes (ranks), each with its graph and workers, and messages.

A single rank without messages is what the simulator runs for one process.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.native import native
from znnpy_kernels.scheduling.ports import OUT, Net, come, leave, post
from znnpy_kernels.scheduling.simulation import (
    COMPLETED,
    FOREVER,
    NONE,
    NOW,
    World,
    deliver,
    horizon,
    turn,
)

TABLE = "int64[:,::1]"
LIST = "int64[::1]"
FLOATS = "float64[:,::1]"
SECONDS = "float64[::1]"
STACKED = "int64[:,:,::1]"
STACKED_FLOATS = "float64[:,:,::1]"


@inlined
def earliest(ranks: Any, times: Any) -> Any:
    """(rank, port, way) of what happens next, NONE for what it is not; ranks come first."""
    rank, port, way, soonest = NONE, NONE, NONE, FOREVER
    for number in range(len(ranks)):
        if ranks[number] < soonest:
            rank, soonest = number, ranks[number]
    for number in range(len(times)):
        for side in range(2):
            if times[number, side] < soonest:
                rank, port, way, soonest = NONE, number, side, times[number, side]
    return rank, port, way


@native(
    f"int64({LIST},{LIST},{TABLE},{LIST},{LIST},{FLOATS},{SECONDS},{TABLE},{STACKED},{TABLE},{STACKED},"
    f"{STACKED_FLOATS},{SECONDS},{FLOATS},{STACKED_FLOATS},{TABLE},{FLOATS},"
    f"{TABLE},{FLOATS},{LIST},{LIST},{LIST},{TABLE},{FLOATS})"
)
def simulate(
    firsts: Any,
    offsets: Any,
    tasks: Any,
    starts: Any,
    successors: Any,
    costs: Any,
    shares: Any,
    links: Any,
    ends: Any,
    queued: Any,
    hands: Any,
    clock: Any,
    rates: Any,
    totals: Any,
    logs: Any,
    members: Any,
    completions: Any,
    messages: Any,
    seconds: Any,
    posts: Any,
    posted: Any,
    comes: Any,
    targets: Any,
    carried: Any,
) -> int:
    """Run as many steps as `completions` has columns on every rank; writes when each was complete.

    Tasks of rank r: firsts[r] .. firsts[r + 1]; `starts` has one entry more for each rank, and counts
    from its offsets[r] of `successors`, which are numbered within the rank. Message m brings a token
    to each (rank, task) of targets[comes[m] : comes[m + 1]]. Returns how many steps were completed over all
    ranks: fewer than asked for when the graphs can make no progress.
    """
    count = len(hands)
    ports = len(carried)
    steps = np.zeros((count, 2), np.int64)
    due = np.zeros((count, 1))
    ranks = np.zeros(count)
    times = np.full((ports, 2), FOREVER)
    net = Net(
        messages,
        seconds,
        posts,
        posted,
        np.full((ports, 2, 2), NONE),
        np.zeros((ports, 2)),
        carried,
    )
    while True:
        rank, port, way = earliest(ranks, times)
        if rank == NONE and port == NONE:
            break
        message, now, first, last = NONE, 0.0, rank, rank + 1
        if rank == NONE:
            now = times[port, way]
            if way == OUT:
                leave(net, times, port)
                continue
            message = come(net, times, port)
            first, last = comes[message], comes[message + 1]
        for place in range(first, last):
            rank = place if message == NONE else targets[place, 0]
            low, high = firsts[rank], firsts[rank + 1]
            world = World(
                tasks[low:high],
                starts[low + rank : high + rank + 1],
                successors[offsets[rank] : offsets[rank + 1]],
                costs[low:high],
                shares[low:high],
                links[low:high],
                ends[rank],
                queued[rank],
                hands[rank],
                clock[rank],
                rates,
                totals[rank],
                logs[rank],
                members[rank],
                steps[rank],
                due[rank],
                completions[rank],
            )
            if message == NONE:
                task = turn(world)
                if task != NONE:
                    post(net, times, low + task, totals[rank, NOW])
            else:
                deliver(world, targets[place, 1], now)
            ranks[rank] = horizon(world)
    return int(steps[:, COMPLETED].sum())
