"""The serial twin of the worker loop: one thread, a binary heap, a fixed order, no atomics.

It shares no protocol with the parallel workers, so that it can serve as their oracle.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.denormals import FLUSH, float_mode, set_float_mode
from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.memory import longs
from znnpy_kernels.machine.native import call_kernel, clock_gettime, native, stack_words

COUNTER, JOINS, KERNEL, ARGUMENTS, FIRST, LAST, GROUP = range(7)
"""Columns of the task table."""
# One column more than is used: a row is 64 bytes, one cache line.
TASK_COLUMNS = 8
READY, EXECUTED, OVERFLOW, CLOCK = range(4)
"""Words of the state: heap entries, tasks run, task (plus one) that got a token too early, clock of recordings."""
STATE_WORDS = 4
MONOTONIC, THREAD_TIME = 1, 3
"""Clocks, as on Linux: the time of Python's time.monotonic_ns, and that for which the calling thread has run."""
MISSING, MEMBERS, COMPLETED = range(3)
"""Columns of the group table."""
DONE, SLICE_OVER, NOTHING_READY, TOKEN_TOO_EARLY = range(4)
"""What `run` returns."""
# Contiguous arrays: with a fixed stride along the last axis indices are additions.
TABLE = "int64[:,::1]"
LIST = "int64[::1]"


@part
def nanoseconds(clock: int) -> Any:
    """Return the time of a clock in nanoseconds."""
    words = stack_words()
    clock_gettime(clock, words)
    return longs(words)[0] * 1_000_000_000 + longs(words)[1]


@part
def heap_push(heap: Any, size: int, item: int) -> None:
    """Add an item to a binary heap of `size` items, smallest first."""
    place = size
    # The hole moves up and the item is stored once, instead of being exchanged at each level.
    while place > 0 and heap[(place - 1) >> 1] > item:
        heap[place] = heap[(place - 1) >> 1]
        place = (place - 1) >> 1
    heap[place] = item


@part
def heap_pop(heap: Any, size: int) -> Any:
    """Remove the smallest of `size` items."""
    smallest, item, place = heap[0], heap[size - 1], 0
    # The heap now has one item less: `size - 1` of them take part, and the last one fills the hole that sinks
    # from the top.
    while 2 * place + 1 < size - 1:
        child = 2 * place + 1
        if child + 1 < size - 1 and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= item:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = item
    return smallest


@part
def arrive(tasks: Any, ranks: Any, heap: Any, state: Any, task: int) -> None:
    """Bring one token to a task; the last one makes it ready."""
    # No atomics: there is one thread. The order, and so the judgement, depends on ranks alone.
    tasks[task, COUNTER] -= 1
    if tasks[task, COUNTER] < 0:
        state[OVERFLOW] = task + 1
    if tasks[task, COUNTER] == 0:
        heap_push(heap, state[READY], ranks[task])
        state[READY] += 1


@part
def execute(
    tasks: Any, successors: Any, ranks: Any, groups: Any, heap: Any, state: Any, task: int
) -> None:
    """Run a task, bring tokens to its successors, count it in its group."""
    # Before the kernel and the successors, as the parallel worker does: a carried edge may bring the next token
    # from a successor.
    tasks[task, COUNTER] = tasks[task, JOINS]
    call_kernel(tasks[task, KERNEL], tasks[task, ARGUMENTS], 0)
    for place in range(tasks[task, FIRST], tasks[task, LAST]):
        arrive(tasks, ranks, heap, state, successors[place])
    group = tasks[task, GROUP]
    if group >= 0:
        groups[group, MISSING] -= 1
        if groups[group, MISSING] == 0:
            groups[group, MISSING] = groups[group, MEMBERS]
            groups[group, COMPLETED] += 1


@part
def step(
    tasks: Any,
    successors: Any,
    ranks: Any,
    order: Any,
    groups: Any,
    heap: Any,
    state: Any,
    events: Any,
) -> None:
    """Run the most urgent ready task, and record when it ran if there is a ring for events."""
    # The heap holds ranks, not tasks: equal urgencies are ordered by number once, when ranks are made.
    task = order[heap_pop(heap, state[READY])]
    state[READY] -= 1
    start = nanoseconds(state[CLOCK]) if len(events) else 0
    execute(tasks, successors, ranks, groups, heap, state, task)
    if len(events):
        row = state[EXECUTED] % len(events)
        events[row, 0], events[row, 1], events[row, 2] = task, start, nanoseconds(state[CLOCK])
    state[EXECUTED] += 1


@native(f"void({TABLE},{LIST},{LIST},{LIST},{LIST},{LIST})")
def release(tasks: Any, ranks: Any, heap: Any, state: Any, sources: Any, count: Any) -> None:
    """Bring one token to each of the sources, and count that."""
    for task in sources:
        arrive(tasks, ranks, heap, state, task)
    count[0] += 1


@native(f"int64({TABLE},{LIST},{LIST},{LIST},{TABLE},{LIST},{LIST},{TABLE},int64,int64,int64)")
def run(
    tasks: Any,
    successors: Any,
    ranks: Any,
    order: Any,
    groups: Any,
    heap: Any,
    state: Any,
    events: Any,
    group: int,
    count: int,
    budget: int,
) -> int:
    """Run ready tasks, smallest rank first, until the group has completed `count` times.

    Returns to the caller after about `budget` nanoseconds at the latest (a task is never cut off),
    with denormals as they were before.
    """
    mode = float_mode()
    set_float_mode(mode | FLUSH)
    deadline = nanoseconds(MONOTONIC) + budget
    outcome = DONE
    while groups[group, COMPLETED] < count:
        if state[OVERFLOW] > 0:
            outcome = TOKEN_TOO_EARLY
        elif state[READY] == 0:
            outcome = NOTHING_READY
        # Two clock readings a task at most; the slice is long beside a task, so it ends a little late at most.
        elif nanoseconds(MONOTONIC) > deadline:
            outcome = SLICE_OVER
        if outcome != DONE:
            break
        step(tasks, successors, ranks, order, groups, heap, state, events)
    set_float_mode(mode)
    return outcome
