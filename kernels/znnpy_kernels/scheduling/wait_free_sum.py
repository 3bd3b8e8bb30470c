"""ZNN's wait-free convergent sum: contributions meet in one slot by exchanging pointers; the finder adds.

Source: Zlateski, Lee, Seung, *ZNN* (arXiv 1510.06706), section on wait-free summation. The order of the additions,
hence the last bits, depends on the schedule, unlike with the fixed combining tree that the engine uses; kept for
comparison.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.abi import kernel, words
from znnpy_kernels.machine.atomics import add_acq_rel, exchange_acq_rel, store_relaxed, swap_acq_rel
from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.memory import longs
from znnpy_kernels.simd.rows import add_row, copy_row

AT = words("slot buffer count remaining target")


@part
def deposit(slot: int, buffer: int, count: int) -> None:
    """Leave the buffer in the slot, having added to it whatever was found there.

    A failed swap means that another task has deposited in between; each deposits once, so a task
    retries at most as often as there are other contributions.
    """
    # Lock-free, not wait-free: a failed swap means that another task has made progress (see the README of
    # `znnpy/scheduler`).
    while True:
        # Taken out first, so that nobody else adds the same partial sum.
        other = exchange_acq_rel(slot, 0)  # acquire: the sums behind the pointer
        if other != 0:
            add_row(buffer, other, buffer, count)
        if swap_acq_rel(slot, 0, buffer):  # release: ours, for who takes it
            return


@kernel(AT)
def exchange_deposit(args: Any, worker: int) -> None:
    """Add one contribution to a sum; the last one leaves the sum in the target.

    slot: address of one int64 word on a line of its own, 0 at first and 0 again after the last
    deposit. buffer: this task's own `count` float32; overwritten with partial sums, and other tasks
    read it until the sum is complete. remaining: address of two int64 words, the contributions
    still to come and how many there are; the last one sets the first back to the second. target:
    `count` float32, not one of the buffers, written by the last task only. Any number of these tasks
    may run at the same time on one slot.
    """
    deposit(args[AT.slot], args[AT.buffer], args[AT.count])
    # The worker that counts the last deposit finds all of them in the slot: acquire, with the others' release.
    if add_acq_rel(args[AT.remaining], -1) != 1:
        return
    # Relaxed, and before the exchange: the tasks that count it down next run after this one, by its successors'
    # tokens.
    store_relaxed(args[AT.remaining], longs(args[AT.remaining] + 8)[0])
    total = exchange_acq_rel(args[AT.slot], 0)
    copy_row(total, args[AT.target], args[AT.count])
