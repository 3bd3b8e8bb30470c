"""The wait of the communication thread: naps of growing length, polling MPI after each, none of it in Python.

Polling MPI is also what moves messages that are under way. Python is entered only when something happened: a look in
Python takes many times as long, since after a nap all data that it touches have left the caches.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import words
from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.memory import ints, longs
from znnpy_kernels.machine.native import call_c, clock_gettime, native, sem_timedwait, stack_words
from znnpy_kernels.scheduling.mailbox import SEMAPHORE
from znnpy_kernels.scheduling.parking import nanoseconds

REST = words(
    "active shortest longest patience until naps test pending requests found indices statuses "
    "probe source tag comm status flag error"
)
"""active: when something has happened last; a nap takes one of `patience` parts of the time since then, within
`shortest` and `longest`; until: when to end; all in nanoseconds of CLOCK_MONOTONIC. naps: how many there were. test,
probe: addresses of MPI_Testsome and MPI_Iprobe; requests: address of `pending` handles; found: how many are
complete, whose places come to `indices`; source, tag, comm: of messages to look for; statuses, status, flag: rooms;
error: what MPI returned last."""
ROUND = 100_000
"""After each so many nanoseconds of a nap MPI is asked once more: it may move large messages by a small buffer a
call."""


@native("void(int64,int64)")
def rest(mailbox: int, block: int) -> None:
    """Wait for a post, a `wake`, complete requests or a message to look for; at most until a time."""
    at = REST
    given = longs(block)
    # Looks before it sleeps: what came while Python was busy ends the wait without a nap.
    while not anything_new(block):
        now = nanoseconds()
        left = given[at.until] - now
        if left <= 0:
            return
        # The longer nothing happens, the longer the naps: the delay stays a fixed part of the time that was
        # waited for anyway.
        wanted = max(given[at.shortest], (now - given[at.active]) // given[at.patience])
        nap = min(left, min(wanted, given[at.longest]))
        given[at.naps] += 1
        if nap_ended(mailbox, nap):
            return
        # MPI moves large messages a buffer a call, and the nap let it make none: make up for the calls that
        # were missed.
        for _ in range(nap // ROUND):
            if anything_new(block):
                return


@part
def nap_ended(mailbox: int, budget: int) -> Any:
    """Sleep for `budget` nanoseconds; return whether a post or a `wake` ended that."""
    # CLOCK_REALTIME, the only clock that `sem_timedwait` knows: if it is set meanwhile, one nap has another
    # length.
    until = stack_words()
    clock_gettime(0, until)
    nanos = longs(until)[1] + budget
    longs(until)[0] += nanos // 1_000_000_000
    longs(until)[1] = nanos % 1_000_000_000
    # A signal ends the wait as well and counts as no post: the caller then asks MPI, and naps again.
    return sem_timedwait(mailbox + SEMAPHORE, until) == 0


@part
def anything_new(block: int) -> Any:
    """Return whether requests are complete, a message has arrived (it stays there), or MPI reports an error."""
    at = REST
    given = longs(block)
    # Requests first: completing them is what tasks wait for. Only what the thread itself started is asked for,
    # so an empty list costs no call.
    if given[at.pending] > 0:
        requests = (
            given[at.pending],
            given[at.requests],
            block + 8 * at.found,
            given[at.indices],
            given[at.statuses],
        )
        given[at.error] = call_c(given[at.test], requests)
        # MPI_UNDEFINED, when no request is active, is negative: not something new.
        if given[at.error] != 0 or ints(block + 8 * at.found)[0] > 0:
            return True
    # Probed, not received: the message stays with MPI until Python fetches it. `flag` is a C int in the low
    # half of its word.
    flag = block + 8 * at.flag
    message = (given[at.source], given[at.tag], given[at.comm], flag, given[at.status])
    given[at.error] = call_c(given[at.probe], message)
    return given[at.error] != 0 or ints(flag)[0] != 0
