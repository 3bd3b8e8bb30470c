"""The simulated loop of ranks: each with its graph and workers, and messages between them over ports.

A single rank without messages is the simulation of one process. Time is added up, not measured; every port carries
one message at a time, each way. A message leaves when all tasks that it waits for have run and its port has sent the
earlier ones; it arrives a latency later, behind those that the other port already receives (LogGP: Alexandrov et al.
1995). A message that occupies all ranks at once has a port of its own, from itself to itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

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


class Graphs(NamedTuple):
    """The tasks of all ranks, one rank behind the other.

    Tasks of rank r: firsts[r] .. firsts[r + 1]; `starts` has one entry more for each rank, and counts from its
    offsets[r] of `successors`, which are numbered within the rank. `tasks`, `costs`, `shares`, `traffic`: as in
    `World`.
    """

    firsts: Any
    offsets: Any
    tasks: Any
    starts: Any
    successors: Any
    costs: Any
    shares: Any
    traffic: Any


class Ranks(NamedTuple):
    """The state of all ranks, which changes: arrays of `World`, rank by rank along the first axis.

    `links` and `waited` are task by task as `Graphs` are; all ranks have the same `rates`.
    """

    links: Any
    waited: Any
    ends: Any
    queued: Any
    hands: Any
    clock: Any
    rates: Any
    totals: Any
    logs: Any
    members: Any
    completions: Any
    steps: Any
    due: Any


class Mail(NamedTuple):
    """The messages of all ranks, and whom they reach: message m brings a token to targets[comes[m] : comes[m + 1]].

    A target is a rank and a task of it. The other arrays are those of `Net`.
    """

    messages: Any
    seconds: Any
    posts: Any
    posted: Any
    comes: Any
    targets: Any
    carried: Any


def _arrays(structure: Any, **axes: str) -> Any:
    """Return the compiled type of a structure of arrays; `axes`: int64 or float64 by field, and how many axes."""
    kinds = {"i": types.int64, "f": types.float64}
    made = [types.Array(kinds[axes[it][0]], int(axes[it][1]), "C") for it in structure._fields]
    return types.NamedTuple(made, structure)


GRAPHS = _arrays(
    Graphs,
    firsts="i1",
    offsets="i1",
    tasks="i2",
    starts="i1",
    successors="i1",
    costs="f2",
    shares="f1",
    traffic="f1",
)
RANKS = _arrays(
    Ranks, links="i2", waited="f1", ends="i3", queued="i2", hands="i3", clock="f3", rates="f1",
    totals="f2", logs="f3", members="i2", completions="f2", steps="i2", due="f2",
)  # fmt: skip
MAIL = _arrays(
    Mail,
    messages="i2",
    seconds="f2",
    posts="i1",
    posted="i1",
    comes="i1",
    targets="i2",
    carried="f2",
)


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


@native(types.int64(GRAPHS, RANKS, MAIL))
def simulate(graphs: Graphs, state: Ranks, mail: Mail) -> int:
    """Run as many steps as `completions` has columns on every rank; write when each was complete.

    Returns how many steps were completed over all ranks: fewer than asked for if the graphs can make no progress.
    """
    count = len(state.hands)
    ports = len(mail.carried)
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
        mail.messages,
        mail.seconds,
        mail.posts,
        mail.posted,
        np.full((ports, 2, 2), NONE),
        np.zeros((ports, 2)),
        mail.carried,
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
            first, last = mail.comes[message], mail.comes[message + 1]
        for place in range(first, last):
            rank = place if message == NONE else mail.targets[place, 0]
            low, high = graphs.firsts[rank], graphs.firsts[rank + 1]
            world = World(
                # Borrowed, as every slice would otherwise count references to its array atomically, several for
                # each event. Each rank has one start more than tasks, hence the shift by its number.
                borrowed(graphs.tasks)[low:high],
                borrowed(graphs.starts)[low + rank : high + rank + 1],
                borrowed(graphs.successors)[graphs.offsets[rank] : graphs.offsets[rank + 1]],
                borrowed(graphs.costs)[low:high],
                borrowed(graphs.shares)[low:high],
                borrowed(graphs.traffic)[low:high],
                borrowed(state.waited)[low:high],
                borrowed(state.links)[low:high],
                borrowed(state.ends)[rank],
                borrowed(state.queued)[rank],
                borrowed(state.hands)[rank],
                borrowed(state.clock)[rank],
                borrowed(state.rates),
                borrowed(state.totals)[rank],
                borrowed(state.logs)[rank],
                borrowed(state.members)[rank],
                borrowed(state.steps)[rank],
                borrowed(state.due)[rank],
                borrowed(state.completions)[rank],
            )
            if message == NONE:
                # A rank's own event. Several ranks are touched only when a message brings tokens to several.
                task = turn(world)
                if task != NONE:
                    post(net, times, low + task, state.totals[rank, NOW])
                    # Posts may have given a port a new time; without any, the earliest port of the last look is
                    # still right.
                    moved = moved or mail.posts[low + task] < mail.posts[low + task + 1]
            else:
                deliver(world, mail.targets[place, 1], now)
            ranks[rank] = horizon(world)
            play(winners, ranks, rank)
    return int(state.steps[:, COMPLETED].sum())
