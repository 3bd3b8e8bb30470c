"""A convergent sum behind a lock: the baseline for the fixed tree and ZNN's wait-free sum.

Workers that find the lock taken spin, and yield the core after a while: a waiting worker does nothing else. The
order of the additions, hence the last bits, depends on the schedule.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.atomics import exchange_acq_rel, load_relaxed, pause, store_release
from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.memory import longs
from znnpy_kernels.machine.native import sched_yield
from znnpy_kernels.scheduling.parking import nanoseconds
from znnpy_kernels.simd.rows import add_row

# Rounds that only pause before the lock's waiter gives its core away: more than `worker.EAGER_ROUNDS`, as an
# addition holds the lock for long and there is nothing else to do here.
EAGER_ROUNDS = 1000


@part
def acquire(lock: int) -> Any:
    """Take the lock; return the nanoseconds of waiting if it was not free, else 0."""
    if exchange_acq_rel(lock, 1) == 0:
        return 0
    start, rounds = nanoseconds(), 0
    # A plain load first: while the lock is taken, waiters share its line instead of taking it from its holder
    # by failing exchanges.
    while load_relaxed(lock) != 0 or exchange_acq_rel(lock, 1) != 0:
        rounds += 1
        if rounds < EAGER_ROUNDS:
            pause()
        else:
            sched_yield()
    return nanoseconds() - start


AT = words("lock buffer count target waited")


@kernel(AT)
def locked_add(args: Any, worker: int) -> None:
    """Add one contribution to a sum under its lock.

    lock: address of one int64 word on a line of its own, 0 when free. buffer: `count` float32, read.
    target: `count` float32, changed under the lock. waited: address of one int64 word on the lock's
    line, nanoseconds that tasks have waited; grows. Any number of these tasks may run at once.
    """
    waited = acquire(args[AT.lock])
    # Under the lock, so no atomic addition is needed; on the lock's line, which is ours at this moment.
    longs(args[AT.waited])[0] += waited
    add_row(args[AT.target], args[AT.buffer], args[AT.target], args[AT.count])
    # Release: whoever takes the lock next, by an exchange that acquires, sees the sum.
    store_release(args[AT.lock], 0)
