"""How fast messages between ranks are, and which strategy that favours; all ranks find the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from math import ceil
from statistics import median
from typing import NamedTuple

import numpy as np
from znnpy_kernels.scheduling.mailbox import post

from znnpy.distributed.ranks import Ranks
from znnpy.distributed.strategies import STRATEGIES, Strategy
from znnpy.distributed.transfers import Span, Transfer, Way
from znnpy.distributed.world import World

SMALL, LARGE = 1 << 10, 1 << 20  # bytes
TRIALS = 5
MESSAGE_SECONDS = 30e-6
"""What a message costs the communication thread, whatever its size."""


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


def chosen(link: Link, ranks: Ranks, layers: Iterable[int]) -> Strategy:
    """The faster one of those that keep the order of additions; `layers`: bytes of their parameters."""
    sizes = list(layers)
    fixed = (it for it in STRATEGIES.values() if it.fixed)
    return min(fixed, key=lambda it: estimated(link, ranks, it, sizes))


def estimated(link: Link, ranks: Ranks, strategy: Strategy, layers: Iterable[int]) -> float:
    """Seconds of an update's messages up and down a tree, if nothing is computed meanwhile."""
    levels = (ranks.size - 1).bit_length()
    found = traffic(ranks, strategy, layers)
    return 2 * levels * link.latency + found.messages * MESSAGE_SECONDS + found.bytes * link.byte


def traffic(ranks: Ranks, strategy: Strategy, layers: Iterable[int]) -> Traffic:
    """Of a strategy with a fixed tree."""
    messages, sent = [0] * ranks.size, [0] * ranks.size
    received = [0] * ranks.size
    chunks = [it for size in layers for it in _cut(size, strategy.chunk)]
    hops = [ranks.hops(color) for color in range(strategy.colors)]
    for number, chunk in enumerate(chunks):
        for into, source in hops[number % strategy.colors]:
            for rank in (into, source):  # who sends up gets as much back, and the other way round
                messages[rank] += 2
                sent[rank] += chunk
                received[rank] += chunk
    return Traffic(max(messages), max(*sent, *received))


def _cut(size: int, chunk: int) -> Sequence[int]:
    count = max(1, ceil(size / chunk))
    return [size // count] * count


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
    messenger.detach()
    return median(found)


def _trial(world: World, complete: threading.Semaphore, count: int) -> float:
    world.exchange(None)
    begin = time.perf_counter()
    for number in range(count):
        post.run(mailbox=world.messenger.address, number=number)
    for _ in range(count):
        complete.acquire()
    return time.perf_counter() - begin
