"""The messages of a graph in compiled code: posts are started, and what MPI has completed releases its phase.

So a message costs the communication thread no Python: a look of the interpreter takes some 30 microseconds of a core
that workers could have. What compiled code cannot do (the first time of a message, sums of the library, graphs whose
releases are Python's) is left to Python, by number.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import words
from znnpy_kernels.machine.atomics import store_release
from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.memory import ints, longs
from znnpy_kernels.machine.native import call_c, native
from znnpy_kernels.scheduling.light_tasks import bring_light
from znnpy_kernels.scheduling.mailbox import MASK, SLOTS, take
from znnpy_kernels.scheduling.parking import anybody_idle, nanoseconds

GRAPH = words(
    "control handle_bytes start handles ready phases sizes started "
    "under_way numbers requests indices statuses found left left_numbers done done_numbers log patience"
)
"""control: the executor's control block, 0 where completions are left to Python; handle_bytes: of an MPI request;
start: address of MPI_Start. Tables by number: handles (a word each), ready (1: start it here), phases, sizes (bytes),
started (nanoseconds). Requests under way: how many, their numbers, handles side by side, rooms of MPI_Testsome.
left: how many posts are left to Python, and their numbers; done: the same of completions. log: address of a `LOG`.
patience: in place of `backoff.REST`'s while all workers have tasks."""
LOG = words("passed bytes seconds mask entries")
"""passed: messages that have arrived so far, their bytes, and nanoseconds from post to arrival in all; entries: address
of a ring of ENTRY words each, of which the index is `passed` and `mask`."""
ENTRY = 4
"""Words of a message in the log: number, posted, started, arrived, of CLOCK_MONOTONIC in nanoseconds."""
MOST = 256
"""Posts taken at once."""


@part
def start_posted(mailbox: int, graph: int, numbers: int) -> Any:
    """Start what tasks have posted, or leave it to Python; return how many posts there were, or -1 and MPI's error.

    `numbers`: room for MOST of them.
    """
    given = longs(graph)
    count, taken, error = 0, MOST, 0
    # Again where the room was full: the posts that are left may have ended this thread's naps already.
    while taken == MOST:
        taken = take(mailbox, numbers, MOST)
        for index in range(taken):
            number = longs(numbers)[index]
            if longs(given[GRAPH.ready])[number] == 0:
                longs(given[GRAPH.left_numbers])[given[GRAPH.left]] = number
                given[GRAPH.left] += 1
            else:
                failed = begin(graph, number)
                if failed != 0:
                    error = failed
        count += taken
    return -error if error != 0 else count


@part
def begin(graph: int, number: int) -> Any:
    """Start a prepared message; return MPI's error."""
    given = longs(graph)
    longs(given[GRAPH.started])[number] = nanoseconds()
    handle = given[GRAPH.handles] + 8 * number
    error = call_c(given[GRAPH.start], (handle,))
    place = given[GRAPH.under_way]
    longs(given[GRAPH.numbers])[place] = number
    # As MPI_Testsome wants them: 4 bytes in MPICH, a pointer in Open MPI. A persistent request keeps its handle.
    if given[GRAPH.handle_bytes] == 4:
        ints(given[GRAPH.requests])[place] = ints(handle)[0]
    else:
        longs(given[GRAPH.requests])[place] = longs(handle)[0]
    given[GRAPH.under_way] = place + 1
    return error


@part
def complete(mailbox: int, graph: int, test: int) -> Any:
    """Release what MPI has completed; return how many there were, or less than 0: MPI's error, negated."""
    given = longs(graph)
    if given[GRAPH.under_way] == 0:
        return 0
    requests = (
        given[GRAPH.under_way],
        given[GRAPH.requests],
        graph + 8 * GRAPH.found,
        given[GRAPH.indices],
        given[GRAPH.statuses],
    )
    error = call_c(test, requests)
    if error != 0:
        return -error
    found = ints(graph + 8 * GRAPH.found)[0]
    if found <= 0:
        return 0
    arrived = nanoseconds()
    for index in range(found):
        place = ints(given[GRAPH.indices])[index]
        number = longs(given[GRAPH.numbers])[place]
        longs(given[GRAPH.numbers])[place] = -1
        arrive_at(mailbox, graph, number, arrived)
    close_gaps(graph)
    return found


@part
def arrive_at(mailbox: int, graph: int, number: int, arrived: int) -> None:
    """Log a message, and release its phase or leave that to Python."""
    given = longs(graph)
    # The log first: whoever waits for the tasks finds it.
    note(mailbox, graph, number, longs(given[GRAPH.started])[number], arrived)
    if given[GRAPH.control] != 0:
        bring_light(given[GRAPH.control], longs(given[GRAPH.phases])[number])
    else:
        longs(given[GRAPH.done_numbers])[given[GRAPH.done]] = number
        given[GRAPH.done] += 1


@part
def note(mailbox: int, graph: int, number: int, started: int, arrived: int) -> None:
    """Add a message to the log."""
    given = longs(graph)
    log = longs(given[GRAPH.log])
    posted = longs(mailbox + SLOTS)[longs(mailbox + MASK)[0] + 1 + number]
    entry = log[LOG.entries] + 8 * ENTRY * (log[LOG.passed] & log[LOG.mask])
    longs(entry)[0], longs(entry)[1] = number, posted
    longs(entry)[2], longs(entry)[3] = started, arrived
    log[LOG.bytes] += longs(given[GRAPH.sizes])[number]
    log[LOG.seconds] += arrived - posted
    # Release: readers of the count see the entry.
    store_release(given[GRAPH.log] + 8 * LOG.passed, log[LOG.passed] + 1)


@part
def close_gaps(graph: int) -> None:
    """Move requests that are under way together, in their order."""
    given = longs(graph)
    numbers, requests, small = (
        given[GRAPH.numbers],
        given[GRAPH.requests],
        given[GRAPH.handle_bytes] == 4,
    )
    kept = 0
    for place in range(given[GRAPH.under_way]):
        number = longs(numbers)[place]
        if number < 0:
            continue
        longs(numbers)[kept] = number
        if small:
            ints(requests)[kept] = ints(requests)[place]
        else:
            longs(requests)[kept] = longs(requests)[place]
        kept += 1
    given[GRAPH.under_way] = kept


@part
def workers_wait(graph: int) -> Any:
    """Return whether a worker has no task: its core this thread may take."""
    control = longs(graph)[GRAPH.control]
    return control != 0 and anybody_idle(control)


@part
def workers_compute(graph: int) -> Any:
    """Return whether all workers have tasks: nobody here waits for a message."""
    control = longs(graph)[GRAPH.control]
    return control != 0 and not anybody_idle(control)


@native("int64(int64,int64)")
def begin_prepared(graph: int, number: int) -> Any:
    """Start a message that Python has prepared; return MPI's error."""
    return begin(graph, number)


@native("void(int64,int64,int64,int64,int64)")
def note_sum(mailbox: int, graph: int, number: int, started: int, arrived: int) -> None:
    """Add a sum of the library, which Python has started, to the log."""
    note(mailbox, graph, number, started, arrived)
