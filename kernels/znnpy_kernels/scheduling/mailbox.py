"""The mailbox in which tasks ask for messages: a ring with many writers, and the communication thread as reader.

A number is in the ring at most once: it is posted again only after its message is done, so after it was taken. With
as many slots as numbers, a writer therefore never meets a slot in use: among the entries since that slot was last
reserved some number occurs twice, its second post comes after the reader took the first, and the reader empties
slots in order. A writer reserves `place` by an addition (acq_rel: reservations see what the writers before them
saw), so no two writers share a slot.
"""

from __future__ import annotations

from typing import Any

from numba import types

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.atomics import (
    add_acq_rel,
    load_acquire,
    load_relaxed,
    store_relaxed,
    store_release,
    swap_acq_rel,
)
from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.memory import longs
from znnpy_kernels.machine.native import native, sem_init, sem_post
from znnpy_kernels.scheduling.parking import nanoseconds

sem_trywait = types.ExternalFunction("sem_trywait", types.intc(types.int64))

# As `control_block.LINE`: words of writers and those of the reader lie on different pairs of lines.
LINE = 128
# Written by all writers.
PLACE = 0
"""Slots that writers have reserved since the start."""
# A line of its own: writers post it, and PLACE must not go with it to the reader's core.
SEMAPHORE = LINE
CALLED = SEMAPHORE + 64
"""1 after a `wake`, until the reader has seen it."""
# Written by the reader alone, so it is read and stored without atomics.
TAKEN = 2 * LINE
"""Slots that the reader has emptied since the start."""
# Slots less one. Writers read it, on the line that the reader writes once a `take`.
MASK = 2 * LINE + 8
SLOTS = 3 * LINE
"""One word a slot: 0, or a number plus one; behind them one word a number, when it was posted last."""

POST = words("mailbox number")


@kernel(POST)
def post(args: Any, worker: int) -> None:
    """Ask for a message, and wake the communication thread."""
    at = POST
    mailbox, number = args[at.mailbox], args[at.number]
    mask = longs(mailbox + MASK)[0]
    # Before the number is published: the reader may look at the time as soon as it has the number.
    longs(mailbox + SLOTS)[mask + 1 + number] = nanoseconds()
    place = add_acq_rel(mailbox + PLACE, 1) & mask
    # Release: publishes the writes of earlier tasks to the thread that hands them to MPI.
    store_release(mailbox + SLOTS + 8 * place, number + 1)
    sem_post(mailbox + SEMAPHORE)


@native("void(int64)")
def prepare(mailbox: int) -> None:
    """Initialise the semaphore."""
    sem_init(mailbox + SEMAPHORE, 0, 0)


@part
def take(mailbox: int, numbers: int, most: int) -> Any:
    """Write at most `most` posted numbers to an address, in their order; return how many."""
    taken, mask = longs(mailbox + TAKEN)[0], longs(mailbox + MASK)[0]
    found = 0
    while found < most:
        slot = mailbox + SLOTS + 8 * (taken & mask)
        # Acquire, with the release in `post`. A reserved slot that is not filled yet ends the look: slots are
        # emptied in order, and its post will wake us.
        number = load_acquire(slot)
        if number == 0:
            break
        # Relaxed: whoever reserves this slot again does so after a number was posted a second time, whose phase
        # this thread released after it had emptied the slot (proof at the head of this module).
        store_relaxed(slot, 0)
        longs(numbers)[found] = number - 1
        # Consumes its post if that has come; else one nap ends early.
        sem_trywait(mailbox + SEMAPHORE)
        taken += 1
        found += 1
    longs(mailbox + TAKEN)[0] = taken
    return found


@native("void(int64)")
def wake(mailbox: int) -> None:
    """End the reader's wait, or its next one, from any thread."""
    store_release(mailbox + CALLED, 1)
    sem_post(mailbox + SEMAPHORE)


@part
def called(mailbox: int) -> Any:
    """Return whether there was a `wake` since the last look."""
    # Read first: a failing swap would take the line from those who post. Acquire: sees what the caller had left.
    if load_relaxed(mailbox + CALLED) == 0 or not swap_acq_rel(mailbox + CALLED, 1, 0):
        return False
    # Its post, if no nap has had it: else one nap ends early.
    sem_trywait(mailbox + SEMAPHORE)
    return True
