"""The wait of the communication thread: naps of growing length, polling MPI after each, none of it in Python.

Polling MPI is also what moves messages that are under way. Messages of the attached graph are started and completed
here (`messages.py`); Python is entered only for what is left to it: a look in Python takes many times as long, since
after a nap all data that it touches have left the caches. While workers have nothing to do, the thread polls without
naps for a while: it takes a core that nobody else of this rank wants, and gives it to other ranks between its looks.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import words
from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.memory import ints, longs
from znnpy_kernels.machine.native import (
    call_c,
    clock_gettime,
    native,
    sched_yield,
    sem_timedwait,
    stack_words,
)
from znnpy_kernels.scheduling.mailbox import SEMAPHORE, called
from znnpy_kernels.scheduling.messages import (
    GRAPH,
    complete,
    start_posted,
    workers_compute,
    workers_wait,
)
from znnpy_kernels.scheduling.parking import nanoseconds

REST = words(
    "active shortest longest patience until naps test pending requests found indices statuses "
    "probe source tag comm status flag error graph posted eager wait system set_turn turn"
)
"""active: when something has happened last; a nap takes one of `patience` parts of the time since then, within
`shortest` and `longest`; until: when to end; all in nanoseconds of CLOCK_MONOTONIC. naps: how many there were. test,
probe: addresses of MPI_Testsome and MPI_Iprobe; requests: address of `pending` handles; found: how many are
complete, whose places come to `indices`; source, tag, comm: of messages to look for; statuses, status, flag: rooms;
error: what MPI returned last. graph: address of a `messages.GRAPH`, 0 without one;
posted: room for the posts of a look; eager: nanoseconds without anything new for which it polls while workers have
nothing to do. wait: address of `sem_clockwait`, 0 where the C library has none (glibc before 2.30). system: address of
`syscall`, set_turn: the number of Linux's sched_setattr, 0 elsewhere; turn: room for its attributes."""
ROUND = 100_000
"""After each so many nanoseconds of a nap MPI is asked once more: it may move large messages by a small buffer a
call."""

EAGER_LOOKS = 8
"""While it polls without naps, MPI is asked so many times for the graph's messages alone: half of the calls."""
OWN_LOOKS = 4
"""Of these so many follow each other before other ranks have the core, if they want it."""
# Of <linux/sched/types.h>, as the first version has it.
TURN = words("size_and_policy flags nice_and_priority runtime deadline period")
"""`struct sched_attr`; of a thread that is no real-time thread `runtime` is the length of its turns."""
MONOTONIC, REALTIME = 1, 0
"""Numbers of Linux's clocks. By the wall clock a nap would last for as long as it is set back."""


@native("void(int64,int64)")
def rest(mailbox: int, block: int) -> None:
    """Serve the graph's messages until there is something for Python: a `wake`, complete requests, posts or completions
    that are left to it, a message to look for; at most until a time."""
    at = REST
    given = longs(block)
    # Looks before it sleeps: what came while Python was busy ends the wait without a nap.
    while not anything_new(mailbox, block):
        now = nanoseconds()
        left = given[at.until] - now
        if left <= 0:
            return
        idle = now - given[at.active]
        if idle < given[at.eager] and given[at.graph] != 0 and workers_wait(given[at.graph]):
            for look in range(EAGER_LOOKS):
                if serve(mailbox, block):
                    return
                sched_yield()
                if look % OWN_LOOKS == OWN_LOOKS - 1:
                    give_way(block)
            continue
        # The longer nothing happens, the longer the naps: the delay stays a fixed part of the time that was
        # waited for anyway.
        patience = given[at.patience]
        if given[at.graph] != 0 and workers_compute(given[at.graph]):
            patience = longs(given[at.graph])[GRAPH.patience]
        wanted = max(given[at.shortest], idle // patience)
        nap = min(left, min(wanted, given[at.longest]))
        given[at.naps] += 1
        # The look tells a `wake` from posts.
        if nap_ended(mailbox, given[at.wait], nap):
            continue
        # MPI moves large messages a buffer a call, and the nap let it make none: make up for the calls that
        # were missed.
        for _ in range(nap // ROUND):
            if anything_new(mailbox, block):
                return


@part
def give_way(block: int) -> None:
    """Give the core to whoever waits for it, also to threads of other sessions, whom `sched_yield` passes over.

    Linux takes a thread whose turns get another length off the queue of its core, and its session with it, and puts
    both behind those that wait. So turns get one longer by a nanosecond, and the next time the former one.
    """
    given = longs(block)
    number, turn = given[REST.set_turn], given[REST.turn]
    if number == 0:
        return
    # Asked each time: nice value and policy, which the call below sets as well, may be changed from outside. The number
    # of sched_getattr is the next one wherever this one is known.
    call_c(given[REST.system], (number + 1, 0, turn, 8 * len(TURN), 0))
    # Before Linux 6.12 turns have no length of their own, and those of real-time threads are not ours to change.
    if longs(turn)[TURN.runtime] != 0 and longs(turn)[TURN.period] == 0:
        longs(turn)[TURN.runtime] ^= 1
        call_c(given[REST.system], (number, 0, turn, 0, 0))
        sched_yield()


@part
def nap_ended(mailbox: int, wait: int, budget: int) -> Any:
    """Sleep for `budget` nanoseconds; return whether a post or a `wake` ended that."""
    until = stack_words()
    clock_gettime(MONOTONIC if wait != 0 else REALTIME, until)
    nanos = longs(until)[1] + budget
    longs(until)[0] += nanos // 1_000_000_000
    longs(until)[1] = nanos % 1_000_000_000
    # A signal ends the wait as well and counts as no post: the caller then asks MPI, and naps again.
    if wait != 0:
        return call_c(wait, (mailbox + SEMAPHORE, MONOTONIC, until)) == 0
    return sem_timedwait(mailbox + SEMAPHORE, until) == 0


@part
def anything_new(mailbox: int, block: int) -> Any:
    """Start what is posted and release what is complete; return whether there is something for Python, or an error."""
    at = REST
    given = longs(block)
    if given[at.graph] != 0 and serve(mailbox, block):
        return True
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
    if called(mailbox):
        return True
    # Probed, not received: the message stays with MPI until Python fetches it. `flag` is a C int in the low
    # half of its word.
    flag = block + 8 * at.flag
    message = (given[at.source], given[at.tag], given[at.comm], flag, given[at.status])
    given[at.error] = call_c(given[at.probe], message)
    return given[at.error] != 0 or ints(flag)[0] != 0


@part
def serve(mailbox: int, block: int) -> Any:
    """Start posts and release completions of the graph; return whether something is left to Python, or an error."""
    at = REST
    given = longs(block)
    graph = given[at.graph]
    happened = 1
    # Posts first: messages then move while it asks for others. Again after completions, by which light tasks may have
    # posted: whoever waits for these would wait for this thread's next turn of a core, too.
    while happened > 0:
        for happened in (
            start_posted(mailbox, graph, given[at.posted]),
            complete(mailbox, graph, given[at.test]),
        ):
            if happened < 0:
                given[at.error] = -happened
                return True
            if happened > 0:
                given[at.active] = nanoseconds()
    return longs(graph)[GRAPH.left] > 0 or longs(graph)[GRAPH.done] > 0
