"""The Chase-Lev deque alone: order on one thread, every entry exactly once on several."""

import os
import threading

import numpy as np
import pytest
from numpy.typing import NDArray
from znnpy_kernels.machine.atomics import add_relaxed, load_acquire, load_relaxed, store_release
from znnpy_kernels.machine.native import native, sched_yield
from znnpy_kernels.scheduling import control_block as at
from znnpy_kernels.scheduling.deque import (
    EMPTY,
    push,
    push_once,
    seems_empty,
    steal,
    steal_once,
    take,
    take_once,
)

WORDS = at.QUEUE_BYTES // 8


class Deque:
    """A queue's words and one slot array per band."""

    def __init__(self, capacity: int) -> None:
        self.words = np.zeros(WORDS, np.int64)
        self.slots = np.zeros((at.BANDS, capacity), np.int32)
        for band in range(at.BANDS):
            self.words[at.SLOTS // 8 + band] = self.slots[band].ctypes.data
            self.words[at.MASKS // 8 + band] = capacity - 1

    @property
    def address(self) -> int:
        return int(self.words.ctypes.data)


@native("void(int64,int64,int64,int64,int64)")
def own(queue: int, seen: int, bursts: int, burst: int, alone: int) -> None:
    """Push bursts of entries, take back about half of each, at the end all that is left."""
    entry = 0
    for turn in range(bursts):
        for _ in range(burst):
            push(queue, 1, entry)
            entry += 1
        for _ in range(burst if turn == bursts - 1 else 1 + turn % burst):
            found = take(queue, 1)
            if found >= 0:
                add_relaxed(seen + 8 * found, 1)
        while load_relaxed(queue + at.BOTTOM + 8) - load_relaxed(queue + at.TOP + 8) > burst:
            if alone:
                sched_yield()
    while not seems_empty(queue, 1):
        found = take(queue, 1)
        if found >= 0:
            add_relaxed(seen + 8 * found, 1)


@native("void(int64,int64,int64,int64)")
def rob(queue: int, seen: int, over: int, alone: int) -> None:
    """Steal until told that it is over."""
    while load_acquire(over) == 0:
        found = steal(queue, 1)
        if found >= 0:
            add_relaxed(seen + 8 * found, 1)
        elif alone:
            sched_yield()


@native("void(int64)")
def end(over: int) -> None:
    store_release(over, 1)


def test_smoke_newest_for_the_owner_oldest_for_thieves() -> None:
    deque = Deque(8)
    for entry in (10, 11, 12):
        push_once(deque.address, 2, entry)
    assert steal_once(deque.address, 2) == 10
    assert take_once(deque.address, 2) == 12
    assert take_once(deque.address, 2) == 11
    assert take_once(deque.address, 2) == EMPTY
    assert steal_once(deque.address, 2) == EMPTY


def test_bands_are_separate() -> None:
    deque = Deque(4)
    push_once(deque.address, 0, 7)
    push_once(deque.address, 3, 8)
    assert take_once(deque.address, 1) == EMPTY
    assert take_once(deque.address, 3) == 8
    assert steal_once(deque.address, 0) == 7


def test_indices_wrap_around_the_array() -> None:
    deque = Deque(4)
    for entry in range(50):
        push_once(deque.address, 0, entry)
        push_once(deque.address, 0, entry + 1000)
        assert steal_once(deque.address, 0) == entry
        assert take_once(deque.address, 0) == entry + 1000


@pytest.mark.quick(1)
@pytest.mark.parametrize(("thieves", "bursts"), [(1, 500), (1, 20_000), (2, 20_000), (4, 20_000)])
def test_stress_every_entry_exactly_once(thieves: int, bursts: int) -> None:
    burst = 4
    deque = Deque(4 * burst)
    seen: NDArray[np.int64] = np.zeros(burst * bursts, np.int64)
    over = np.zeros(1, np.int64)
    end(over.ctypes.data)
    # On one core each burst would wait for the end of a time slice of every thief. On several, threads that
    # lose their core do so in the midst of a steal.
    alone = len(os.sched_getaffinity(0)) == 1
    rob(deque.address, seen.ctypes.data, over.ctypes.data, alone)
    own(deque.address, seen.ctypes.data, 0, 1, alone)
    over[0] = 0
    threads = [
        threading.Thread(
            target=rob, args=(deque.address, seen.ctypes.data, over.ctypes.data, alone)
        )
        for _ in range(thieves)
    ]
    for thread in threads:
        thread.start()
    own(deque.address, seen.ctypes.data, bursts, burst, alone)
    end(over.ctypes.data)
    for thread in threads:
        thread.join()
    assert (seen == 1).all()
