"""The simulated loop of ranks: each with its graph and workers, and messages between them over ports.

A single rank without messages is the simulation of one process. Time is added up, not measured; every port carries
one message at a time, each way. A message leaves when all tasks that it waits for have run and its port has sent the
earlier ones; it arrives a latency later, behind those that the other port already receives (LogGP: Alexandrov et al.
1995). A message that occupies all ranks at once has a port of its own, from itself to itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.machine.memory import borrowed
from znnpy_kernels.machine.native import native
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

# Two tables, for whole numbers and for seconds: a numba array has one type.
LEFT, JOINS, SOURCE, TARGET, NEXT = range(5)
"""Columns of `messages`: what it still waits for, and in all; its ports; the one behind it."""
LASTS, LATENCY, COMES = range(3)
"""Columns of `seconds`: on a port, from one to the other; and when it will have come."""
OUT, IN = range(2)
"""Ways through a port."""

# Contiguous arrays, as in `serial`; STACKED ones have a part for each rank in front.
TABLE = "int64[:,::1]"
LIST = "int64[::1]"
FLOATS = "float64[:,::1]"
SECONDS = "float64[::1]"
STACKED = "int64[:,:,::1]"
STACKED_FLOATS = "float64[:,:,::1]"


class Net(NamedTuple):
    """Messages on their way.

    Task t (counted over all ranks) posts posted[posts[t] : posts[t + 1]]. `ends`: first and last message of each
    port and way; `free`: since when it carries nothing. `carried`: seconds for which it was busy.
    """

    messages: Any
    seconds: Any
    posts: Any
    posted: Any
    ends: Any
    free: Any
    carried: Any


@inlined
def enqueue(net: Net, port: int, way: int, message: int) -> Any:
    """Queue a message behind the others; return whether it is the first."""
    last = net.ends[port, way, 1]
    # A linked list through the messages' own NEXT column: queues need no memory of their own, since a message
    # is in one queue at a time.
    net.messages[message, NEXT] = NONE
    net.ends[port, way, 1] = message
    if last != NONE:
        net.messages[last, NEXT] = message
        return False
    net.ends[port, way, 0] = message
    return True


@inlined
def dequeue(net: Net, port: int, way: int) -> Any:
    """Remove the first message."""
    message = net.ends[port, way, 0]
    following = net.messages[message, NEXT]
    net.ends[port, way, 0] = following
    if following == NONE:
        net.ends[port, way, 1] = NONE
    return message


@inlined
def post(net: Net, times: Any, task: int, now: float) -> None:
    """End a task: its messages that wait for nothing else leave as soon as their port is free.

    `times[port, way]`: when the next event happens there.
    """
    for place in range(net.posts[task], net.posts[task + 1]):
        message = net.posted[place]
        net.messages[message, LEFT] -= 1
        if net.messages[message, LEFT] > 0:
            continue
        # As a join counter is set back when its task starts: the same messages run in the next step.
        net.messages[message, LEFT] = net.messages[message, JOINS]
        port = net.messages[message, SOURCE]
        if enqueue(net, port, OUT, message):
            # Only the first of a port has an event; those behind it get theirs when it has left.
            times[port, OUT] = max(now, net.free[port, OUT])


@inlined
def leave(net: Net, times: Any, port: int) -> None:
    """Start to send the first message of a port, and queue it at the other port."""
    now = times[port, OUT]
    message = dequeue(net, port, OUT)
    target, lasts = net.messages[message, TARGET], net.seconds[message, LASTS]
    net.free[port, OUT] = now + lasts
    # A latency later, and not before the other port has received what was queued there earlier.
    begins = max(now + net.seconds[message, LATENCY], net.free[target, IN])
    # The time of coming is fixed here, when it leaves: later messages queue behind it, so nothing can change
    # it.
    net.free[target, IN] = net.seconds[message, COMES] = begins + lasts
    net.carried[port, OUT] += lasts
    net.carried[target, IN] += lasts
    if enqueue(net, target, IN, message):
        times[target, IN] = begins + lasts
    # The port sends for `lasts` seconds before its next message may leave.
    times[port, OUT] = FOREVER if net.ends[port, OUT, 0] == NONE else net.free[port, OUT]


@inlined
def come(net: Net, times: Any, port: int) -> Any:
    """Finish receiving the first message at a port; return it."""
    message = dequeue(net, port, IN)
    first = net.ends[port, IN, 0]
    times[port, IN] = FOREVER if first == NONE else net.seconds[first, COMES]
    return message


@inlined
def play(winners: Any, ranks: Any, rank: int) -> None:
    """Update the tournament tree after a rank's time changed; of equal times the first rank wins.

    `ranks`: times, as many as a power of two. Node n has the winner of 2 n and 2 n + 1, the last nodes are the
    ranks.
    """
    # From the parent of the rank's leaf up to the root, node 1: log2 of the ranks comparisons an event, instead
    # of all ranks.
    node = (len(ranks) + rank) // 2
    while node > 0:
        one, other = winners[2 * node], winners[2 * node + 1]
        # `<=` for the left child: ties go to the lower rank, so a simulation gives the same times whenever it
        # is repeated.
        winners[node] = one if ranks[one] <= ranks[other] else other
        node //= 2


@inlined
def soonest(times: Any) -> Any:
    """Return (port, way) of the next event, (0, 0) if there is none."""
    # All ports are looked at, but only after something moved (see `moved`): most events are tasks that end.
    port, way = 0, 0
    for number in range(len(times)):
        for side in range(2):
            if times[number, side] < times[port, way]:
                port, way = number, side
    return port, way


@native(
    f"int64({LIST},{LIST},{TABLE},{LIST},{LIST},{FLOATS},{SECONDS},{TABLE},{STACKED},{TABLE},{STACKED},"
    f"{STACKED_FLOATS},{SECONDS},{FLOATS},{STACKED_FLOATS},{TABLE},{FLOATS},"
    f"{TABLE},{FLOATS},{LIST},{LIST},{LIST},{TABLE},{FLOATS},{TABLE},{FLOATS})"
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
    steps: Any,
    due: Any,
) -> int:
    """Run as many steps as `completions` has columns on every rank; write when each was complete.

    Tasks of rank r: firsts[r] .. firsts[r + 1]; `starts` has one entry more for each rank, and counts from its
    offsets[r] of `successors`, which are numbered within the rank. Message m brings a token to each (rank, task) of
    targets[comes[m] : comes[m + 1]]. Returns how many steps were completed over all ranks: fewer than asked for if
    the graphs can make no progress.
    """
    count = len(hands)
    ports = len(carried)
    # Tournament trees have a power of two of leaves; ranks beyond `count` never have an event.
    places = 1
    while places < count:
        places *= 2
    ranks = np.full(places, FOREVER)
    ranks[:count] = 0.0
    # Nodes `places` to 2 * places - 1 are the leaves: each is its own winner. The inner ones are played below.
    winners = np.arange(2 * places) - places
    for rank in range(places):
        play(winners, ranks, rank)
    # One row at least, as `times[port, way]` is read even where there are no messages.
    times = np.full((max(1, ports), 2), FOREVER)
    port, way, moved = 0, 0, False
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
        if moved:
            port, way = soonest(times)
            moved = False
        rank, now = winners[1], times[port, way]
        if ranks[rank] >= FOREVER and now >= FOREVER:
            break
        message, first, last = NONE, rank, rank + 1
        # Strictly earlier: of equal times the ranks' own events come first.
        if now < ranks[rank]:
            moved = True
            if way == OUT:
                leave(net, times, port)
                continue
            message = come(net, times, port)
            first, last = comes[message], comes[message + 1]
        for place in range(first, last):
            rank = place if message == NONE else targets[place, 0]
            low, high = firsts[rank], firsts[rank + 1]
            world = World(
                # Borrowed, as every slice would otherwise count references to its array atomically, several for
                # each event.
                borrowed(tasks)[low:high],
                # Each rank has one start more than tasks, hence the shift by its number.
                borrowed(starts)[low + rank : high + rank + 1],
                borrowed(successors)[offsets[rank] : offsets[rank + 1]],
                borrowed(costs)[low:high],
                borrowed(shares)[low:high],
                borrowed(links)[low:high],
                borrowed(ends)[rank],
                borrowed(queued)[rank],
                borrowed(hands)[rank],
                borrowed(clock)[rank],
                borrowed(rates),
                borrowed(totals)[rank],
                borrowed(logs)[rank],
                borrowed(members)[rank],
                borrowed(steps)[rank],
                borrowed(due)[rank],
                borrowed(completions)[rank],
            )
            if message == NONE:
                # A rank's own event. Several ranks are touched only when a message brings tokens to several.
                task = turn(world)
                if task != NONE:
                    post(net, times, low + task, totals[rank, NOW])
                    # Posts may have given a port a new time; without any, the earliest port of the last look is
                    # still right.
                    moved = moved or posts[low + task] < posts[low + task + 1]
            else:
                deliver(world, targets[place, 1], now)
            ranks[rank] = horizon(world)
            play(winners, ranks, rank)
    return int(steps[:, COMPLETED].sum())
