"""How fast messages between ranks are, and which strategy that favours; all ranks find the same."""

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

SMALL, LARGE = 1 << 10, 1 << 20  # bytes
TRIALS = 5
MESSAGE_SECONDS = 30e-6
"""What a message costs the communication thread, whatever its size."""
Layers = Sequence[Sequence[Pieces]]
"""What is added up, of each layer."""


class Link(NamedTuple):
    """Seconds that a small message takes, and seconds for each byte more."""

    latency: float
    byte: float


class Traffic(NamedTuple):
    """What the busiest rank sends and receives in an update: messages, and bytes of one direction."""

    messages: int
    bytes: int


def measured(world: World) -> Link:
    """The slowest rank's messages, all ranks sending at once; takes some milliseconds."""
    own = [_seconds(world, size) for size in (SMALL, LARGE)]
    small, large = (max(column) for column in zip(*world.exchange(own), strict=True))
    return Link(small, max(0.0, large - small) / (LARGE - SMALL))


def chosen(
    link: Link,
    ranks: Ranks,
    layers: Layers,
    colors: int | None = None,
    chunk: int | None = None,
) -> Strategy:
    """The faster one of those that keep the order of additions, with so many colors and bytes of a message."""
    fixed = (adjusted(it, colors, chunk) for it in STRATEGIES.values() if it.fixed)
    return min(fixed, key=lambda it: estimated(link, ranks, it, layers))


def estimated(link: Link, ranks: Ranks, strategy: Strategy, layers: Layers) -> float:
    """Seconds of an update's messages up and down a tree, if nothing is computed meanwhile."""
    levels = (ranks.size - 1).bit_length()
    found = traffic(ranks, strategy, layers)
    return 2 * levels * link.latency + found.messages * MESSAGE_SECONDS + found.bytes * link.byte


def traffic(ranks: Ranks, strategy: Strategy, layers: Layers) -> Traffic:
    """Of a strategy with a fixed tree."""
    messages, sent = [0] * ranks.size, [0] * ranks.size
    hops = [ranks.hops(color) for color in range(strategy.colors)]
    for color, bundle in in_turn(strategy, layers):
        for into, source in hops[color]:
            for rank in (into, source):  # who sends up gets as much back, and the other way round
                messages[rank] += 2
                sent[rank] += size_of(bundle)
    return Traffic(max(messages), max(sent))


def _seconds(world: World, size: int) -> float:
    """Of messages round a ring of ranks, half of them away, through the communication thread."""
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
    world.exchange(None)
    begin = time.perf_counter()
    for number in range(count):
        post.call(mailbox=world.messenger.address, number=number)
    for _ in range(count):
        complete.acquire()
    return time.perf_counter() - begin
