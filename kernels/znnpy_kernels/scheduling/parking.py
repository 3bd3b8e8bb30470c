"""Parking: idle workers sleep and are woken without a lost wake-up, by announce, fence, look again, sleep.

A worker that is about to sleep announces itself and then looks at every deque once more; a worker that pushes looks
for announcements after the push. The two fences make it impossible that both miss each other. The waker claims the
sleeper by compare-and-swap, so every wake-up is posted once.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.atomics import (
    add_relaxed,
    fence_seq_cst,
    load_acquire,
    load_relaxed,
    store_relaxed,
    swap_acq_rel,
)
from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.memory import longs
from znnpy_kernels.machine.native import clock_gettime, sem_post, sem_wait, stack_words
from znnpy_kernels.scheduling.control_block import (
    AWAKE,
    BANDS,
    PARKED,
    PARKED_NS,
    PARKS,
    QUEUE_BYTES,
    QUEUES,
    SEARCHING,
    SEMAPHORE,
    SLEEPERS,
    STATE,
    STOP,
    WORKERS,
)
from znnpy_kernels.scheduling.deque import seems_empty


@part
def nanoseconds() -> Any:
    """Return CLOCK_MONOTONIC in nanoseconds, the clock of Python's time.monotonic_ns."""
    words = stack_words()
    # CLOCK_MONOTONIC is 1 on Linux.
    clock_gettime(1, words)
    return longs(words)[0] * 1_000_000_000 + longs(words)[1]


@part
def anything_to_do(control: int) -> Any:
    """Return whether any deque or the injector seems to hold an entry, or the stop flag is up."""
    if load_relaxed(control + STOP) != 0:
        return True
    # The injector has the index WORKERS, so one more queue than there are workers.
    for index in range(longs(control + WORKERS)[0] + 1):
        for band in range(BANDS):
            if not seems_empty(longs(control + QUEUES)[0] + index * QUEUE_BYTES, band):
                return True
    return False


@part
def anybody_idle(control: int) -> Any:
    """Return whether any worker sleeps or looks for a task; a hint."""
    if load_relaxed(control + SLEEPERS) > 0:
        return True
    for worker in range(longs(control + WORKERS)[0]):
        if load_relaxed(longs(control + QUEUES)[0] + worker * QUEUE_BYTES + STATE) == SEARCHING:
            return True
    return False


@part
def claim(control: int, queue: int) -> Any:
    """End a worker's announcement; return true to the one caller that ended it."""
    # Acquire and release: the sleeper that sees AWAKE sees what its waker did before; the waker sees all that
    # came before the announcement.
    if not swap_acq_rel(queue + STATE, PARKED, AWAKE):
        return False
    # After the swap, by whoever made it: exactly one decrement for each announcement.
    add_relaxed(control + SLEEPERS, -1)
    return True


@part
def park(control: int, queue: int) -> None:
    """Sleep until another worker claims this one; return at once if there is something to do."""
    # The count first: were the state set before, a waker could take one off that is not yet on, and
    # another sleeper would be invisible for a moment.
    add_relaxed(control + SLEEPERS, 1)
    store_relaxed(queue + STATE, PARKED)
    # This fence and that in `wake` are in one order. If the waker's comes first, we see its push
    # below; if ours does, it sees our announcement.
    fence_seq_cst()
    if anything_to_do(control):
        # Either we end our announcement, or a waker already has, and its post is absorbed below, later.
        claim(control, queue)
        return
    start = nanoseconds()
    # A loop, as posts of earlier announcements may end a wait. Acquire: sees the waker's writes before its claim.
    while load_acquire(queue + STATE) == PARKED:
        sem_wait(queue + SEMAPHORE)
    longs(queue + PARKS)[0] += 1
    longs(queue + PARKED_NS)[0] += nanoseconds() - start


@part
def wake(control: int, count: int) -> None:
    """Wake up to `count` sleepers; the caller's push comes before, in its program order."""
    fence_seq_cst()  # between push and look, as in `park` between announcement and look
    if load_relaxed(control + SLEEPERS) > 0:
        wake_some(control, count)


@part
def wake_some(control: int, count: int) -> None:
    """Claim sleepers and post their semaphores."""
    for worker in range(longs(control + WORKERS)[0]):
        queue = longs(control + QUEUES)[0] + worker * QUEUE_BYTES
        # Read first: a failing swap would take the cache line from the worker that owns it.
        if load_relaxed(queue + STATE) == PARKED and claim(control, queue):
            sem_post(queue + SEMAPHORE)  # by the one whose swap succeeded: once
            count -= 1
            if count == 0:
                return
