"""Messages in time that is added up: every port carries one at a time, each way.

A message leaves when all that it waits for is there and its port has sent those that waited before
it; it comes in a latency later, behind what comes in at the other port already (LogGP: Alexandrov et
al. 1995). What takes all ranks at once has a port of its own, from itself to itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.scheduling.simulation import FOREVER, NONE

LEFT, JOINS, SOURCE, TARGET, NEXT = range(5)
"""Columns of `messages`: what it still waits for, and in all; its ports; the one behind it."""
LASTS, LATENCY, COMES = range(3)
"""Columns of `seconds`: on a port, from one to the other; and when it will have come."""
OUT, IN = range(2)
"""Ways through a port."""


class Net(NamedTuple):
    """Messages on their way.

    Task t (counted over all ranks) posts posted[posts[t] : posts[t + 1]]. `ends`: first and last
    message of each port and way; `free`: since when it carries nothing. `carried`: seconds that it carried.
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
    """Put a message behind the others; whether it is the first."""
    last = net.ends[port, way, 1]
    net.messages[message, NEXT] = NONE
    net.ends[port, way, 1] = message
    if last != NONE:
        net.messages[last, NEXT] = message
        return False
    net.ends[port, way, 0] = message
    return True


@inlined
def dequeue(net: Net, port: int, way: int) -> Any:
    """Take the first message away."""
    message = net.ends[port, way, 0]
    following = net.messages[message, NEXT]
    net.ends[port, way, 0] = following
    if following == NONE:
        net.ends[port, way, 1] = NONE
    return message


@inlined
def post(net: Net, times: Any, task: int, now: float) -> None:
    """A task has ended: what waited for nothing else leaves as soon as its port is free.

    `times[port, way]`: when something happens there next.
    """
    for place in range(net.posts[task], net.posts[task + 1]):
        message = net.posted[place]
        net.messages[message, LEFT] -= 1
        if net.messages[message, LEFT] > 0:
            continue
        net.messages[message, LEFT] = net.messages[message, JOINS]
        port = net.messages[message, SOURCE]
        if enqueue(net, port, OUT, message):
            times[port, OUT] = max(now, net.free[port, OUT])


@inlined
def leave(net: Net, times: Any, port: int) -> None:
    """The first message of a port begins to leave, and is put behind others at the other port."""
    now = times[port, OUT]
    message = dequeue(net, port, OUT)
    target, lasts = net.messages[message, TARGET], net.seconds[message, LASTS]
    net.free[port, OUT] = now + lasts
    begins = max(now + net.seconds[message, LATENCY], net.free[target, IN])
    net.free[target, IN] = net.seconds[message, COMES] = begins + lasts
    net.carried[port, OUT] += lasts
    net.carried[target, IN] += lasts
    if enqueue(net, target, IN, message):
        times[target, IN] = begins + lasts
    times[port, OUT] = FOREVER if net.ends[port, OUT, 0] == NONE else net.free[port, OUT]


@inlined
def come(net: Net, times: Any, port: int) -> Any:
    """The first message at a port is there; returns it."""
    message = dequeue(net, port, IN)
    first = net.ends[port, IN, 0]
    times[port, IN] = FOREVER if first == NONE else net.seconds[first, COMES]
    return message
