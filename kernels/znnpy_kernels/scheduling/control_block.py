"""Layout of the control block, the scheduler's shared memory: byte offsets of its words.

Words that different workers write lie 128 bytes apart: x86 fetches lines in pairs. A task record is one line: the
worker that takes the last token off its counter usually runs it next and needs the rest.
"""

from __future__ import annotations

# Two cache lines, since the adjacent-line prefetcher of x86 fetches them in pairs: one alone would still be
# shared falsely.
LINE = 128
# As in `znnpy.graph`; `znnpy/scheduler/control_block.py` asserts that both are the same.
BANDS = 4
# So few low bits leave 2^29 tasks in an int32, and a deque's slot is half a word.
BAND_BITS = 2
"""An entry of a deque, and of a successor list, is an int32: task << BAND_BITS | band."""

# The header; offsets in it become addresses when `worker.prepare` runs.
WORKERS = 0
# TASKS, QUEUES, GROUPS and PHASES are addresses, so that workers add no base; counts stand beside them.
TASKS = 8
TASK_COUNT = 16
QUEUES = 24
GROUPS = 32
GROUP_COUNT = 40
PHASES = 48
"""Table of phase_count + 1 addresses: the sources of phase p are the int32 from [p] to [p + 1]. Behind them, by phase,
how often it was released: counted by who brings the tokens, so that a Ctrl-C at any moment leaves the count right."""
PHASE_COUNT = 56
RING_ROWS = 64
"""Events kept per worker; 0: nothing is recorded."""
# Nanoseconds for which an idle worker looks for work: the executor's, as it knows how many workers share cores.
SPIN_NS = 72
# Words that change while workers run have lines of their own; those above are only read once the workers have
# started.
STOP = LINE
# Written by whoever parks or wakes, read at every push: apart from STOP, which each worker reads for each task.
SLEEPERS = 2 * LINE
# Written only by a broken graph; apart, so that nobody's line is taken by it.
TOO_EARLY = 3 * LINE
"""Task (plus one) that got a token before it had started with the earlier ones."""
RELEASING = 4 * LINE
"""1 while a thread brings the tokens of a phase: the main thread releases steps, the communication thread messages."""
HEADER_BYTES = 5 * LINE

# A task record, 64 bytes.
COUNTER, JOINS, KERNEL, ARGUMENTS, FIRST, LAST, GROUP, LIGHT = range(0, 64, 8)
"""FIRST and LAST: from where to where the int32 successor entries lie. LIGHT: 1 for tasks that the thread which makes
them ready may run itself."""
# A cache line, so that no record lies on two lines.
TASK_BYTES = 64
# log2 of TASK_BYTES: the address of a record is found by a shift from the entry.
TASK_SHIFT = 6

# A queue: one per worker, and the injector after them.
BOTTOM = 0
"""One word a band; written by the owner."""
TOP = LINE
"""One word a band; written by thieves (and the owner at the last entry)."""
# Claimed by wakers, so it shares no line with what the owner writes for each task.
STATE = 2 * LINE
# Beside STATE: only who parks or wakes touches either.
SEMAPHORE = STATE + 8
# On a line of its own: statistics change with each task, and thieves that read TOP or STATE must not lose their
# copy by that.
EXECUTED, STEALS, FAILED_STEALS, PARKS, PARKED_NS, RANDOM, SEARCHES = range(
    3 * LINE, 3 * LINE + 56, 8
)
"""Written by the owner only. SEARCHES counts only while events are recorded."""
# Read by thieves, and never written after `prepare`: every core may keep its copy.
SLOTS = 4 * LINE
"""One address a band: the fixed array of int32 entries."""
# One mask a band, the capacity less one: capacities are powers of two, so an index wraps by an `and`.
MASKS = SLOTS + 8 * BANDS
# Addresses, read only: beside the other words that never change.
RING = MASKS + 8 * BANDS
SEARCH_RING = RING + 8
NEAR, NEAR_END = SEARCH_RING + 8, SEARCH_RING + 16
"""The numbers of the workers that share a last-level cache with this one, from NEAR up to NEAR_END: robbed first."""
# Whole pairs of lines, so that the next worker's words begin on one of their own.
QUEUE_BYTES = 5 * LINE

AWAKE, PARKED, SEARCHING = range(3)
"""What STATE has. SEARCHING: it has no task, and has not announced that it sleeps."""

# A group.
MISSING, MEMBERS, COMPLETED, DONE_SEMAPHORE = range(0, 32, 8)
# A line for each group: workers that finish different groups do not write the same line.
GROUP_BYTES = LINE

EVENT_BYTES = 32
"""task, start_ns, end_ns, where it came from (0 own deque, 1 another worker, 2 the injector).
A search: start_ns, park_ns (0: it did not sleep), end_ns, rounds over all victims that brought nothing."""
