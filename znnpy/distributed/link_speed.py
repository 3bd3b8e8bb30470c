"""Measures latency and bandwidth between ranks, and picks the strategy that they favour (`auto`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
from znnpy_kernels.scheduling.mailbox import post

from znnpy.distributed.buckets import Pieces, in_turn, size_of
from znnpy.distributed.reduction_tree import Ranks
from znnpy.distributed.strategies import STRATEGIES, Strategy, adjusted
from znnpy.distributed.transfers import Span, Transfer, Way
from znnpy.distributed.world import World

# A message that is all latency, and one that is mostly bandwidth: the difference is the bandwidth's.
SMALL, LARGE = 1 << 10, 1 << 20  # bytes
# Odd, so that the median is one of them.
TRIALS = 5  # of which the median counts: another program may delay some
# A round figure for starting, completing and releasing one; it keeps `auto` from many small messages where
# links are fast.
MESSAGE_SECONDS = 30e-6
"""Time that a message costs the communication thread, whatever its size."""
Layers = Sequence[Sequence[Pieces]]
"""The numbers to be added up, by layer."""


class Link(NamedTuple):
    """Latency: seconds of a small message; and the seconds of each further byte."""

    latency: float
    byte: float


class Traffic(NamedTuple):
    """The busiest rank's messages in an update, their bytes in one direction, and rounds one after the other."""

    messages: int
    bytes: int
    rounds: int


def measured(world: World) -> Link:
    """Measure the slowest rank's messages, with all ranks sending at once; takes some milliseconds."""
    own = [_seconds(world, size) for size in (SMALL, LARGE)]
    # The slowest rank's: every sum waits for it.
    small, large = (max(column) for column in zip(*world.exchange(own), strict=True))
    return Link(small, max(0.0, large - small) / (LARGE - SMALL))


def chosen(
    link: Link,
    ranks: Ranks,
    layers: Layers,
    colors: int | None = None,
    chunk: int | None = None,
) -> Strategy:
    """Return the fastest strategy that keeps the order of additions, with so many colors and bytes of a message."""
    fixed = (adjusted(it, colors, chunk) for it in STRATEGIES.values() if it.fixed)
    return min(fixed, key=lambda it: estimated(link, ranks, it, layers))


def estimated(link: Link, ranks: Ranks, strategy: Strategy, layers: Layers) -> float:
    """Return the seconds of an update's messages up and down a tree, if nothing is computed meanwhile."""
    found = traffic(ranks, strategy, layers)
    # A model, not a simulation: latencies of the rounds one after the other, and what the busiest rank sends
    # and starts.
    return found.rounds * link.latency + found.messages * MESSAGE_SECONDS + found.bytes * link.byte


def traffic(ranks: Ranks, strategy: Strategy, layers: Layers) -> Traffic:
    """Return the traffic of a strategy with a fixed tree."""
    messages, sent = [0] * ranks.size, [0] * ranks.size
    hops = [ranks.hops(color) for color in range(strategy.colors)]
    # Levels of the tree over ranks; up, and with colors down again.
    levels, most = (ranks.size - 1).bit_length(), 0
    rounds = [hop for found in ranks.rounds() or () for hop in found]
    for color, bundle in in_turn(strategy, layers, ranks):
        if color is None:
            most = max(most, levels)
            for into, source in rounds:
                messages[into] += 1
                messages[source] += 1
                sent[source] += size_of(bundle)
            continue
        most = 2 * levels
        for into, source in hops[color]:
            for rank in (into, source):  # who sends up gets as much back, and the other way round
                messages[rank] += 2
                sent[rank] += size_of(bundle)
    # Of different ranks perhaps: the busiest by either measure bounds the update.
    return Traffic(max(messages), max(sent), most)


def _seconds(world: World, size: int) -> float:
    """Return the seconds of messages round a ring of ranks, through the communication thread."""
    # Half-way round: with several ranks a host, neighbours would often be of the same host.
    messenger, half = world.messenger, max(1, world.size // 2)
    mine, theirs = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
    to, back = (world.rank + half) % world.size, (world.rank - half) % world.size
    complete = threading.Semaphore(0)
    transfers = [
        Transfer(Way.RECEIVE, back, 0, (Span(theirs.ctypes.data, size),), 0),
        Transfer(Way.SEND, to, 0, (Span(mine.ctypes.data, size),), 1),
    ]
    messenger.attach(transfers, lambda phase: complete.release())
    found = [_trial(world, complete, len(transfers)) for _ in range(TRIALS)]
    messenger.detach(transfers)
    return median(found)


def _trial(world: World, complete: threading.Semaphore, count: int) -> float:
    # All begin together, or a rank would measure how late the others are.
    world.exchange(None)
    begin = time.perf_counter()
    for number in range(count):
        post.call(mailbox=world.messenger.address, number=number)
    for _ in range(count):
        complete.acquire()
    return time.perf_counter() - begin
