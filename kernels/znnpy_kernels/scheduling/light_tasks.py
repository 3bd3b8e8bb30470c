"""Phases that are released: what is light and ready by them runs in the thread that releases them, at once.

A message's arrival makes short tasks ready: an addition, the post of what goes on from there, or one that only tells
others. To wake a worker for each takes longer than they do, and where all workers have tasks they would wait. Light
tasks use no memory of a worker's own. Those that become ready by them and are light run here as well; all others go to
the injector, as those of any phase.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from znnpy_kernels.machine.atomics import load_relaxed, store_relaxed, store_release, swap_acq_rel
from znnpy_kernels.machine.denormals import FLUSH, float_mode, set_float_mode
from znnpy_kernels.machine.inlining import part
from znnpy_kernels.machine.memory import ints, longs
from znnpy_kernels.machine.native import call_kernel, native, sched_yield
from znnpy_kernels.scheduling.control_block import (
    ARGUMENTS,
    COUNTER,
    FIRST,
    GROUP,
    JOINS,
    KERNEL,
    LAST,
    LIGHT,
    PHASE_COUNT,
    PHASES,
    QUEUE_BYTES,
    QUEUES,
    RELEASING,
    RING_ROWS,
    STOP,
    WORKERS,
)
from znnpy_kernels.scheduling.deque import push
from znnpy_kernels.scheduling.parking import wake
from znnpy_kernels.scheduling.worker import BAND_MASK, arrive, bring, complete, record_of

WAITING = 256
"""Light tasks that may wait for this thread at once; what is more goes to the workers."""


@intrinsic
def waiting_room(typingctx: Any) -> Any:
    """Return the address of WAITING int64 words on the caller's stack."""

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> Any:
        # In the entry block: an alloca within a loop would take more stack at each turn.
        with builder.goto_entry_block():
            words = builder.alloca(ir.ArrayType(ir.IntType(64), WAITING))
        return builder.ptrtoint(words, ir.IntType(64))

    return types.int64(), codegen


@part
def bring_light(control: int, phase: int) -> None:
    """Bring a token to each source of the phase, and run what is light; from any thread."""
    # Events are noted in rings of workers: while they are recorded workers run all.
    if longs(control + RING_ROWS)[0] > 0:
        bring(control, phase)
    else:
        waiting, sources = waiting_room(), longs(longs(control + PHASES)[0])
        count = hand_out(control, sources[phase], sources[phase + 1], waiting, 0)
        sources[longs(control + PHASE_COUNT)[0] + 1 + phase] += 1
        if count > 0:
            run_light(control, waiting, count)


@native("void(int64,int64)")
def release(control: int, phase: int) -> None:
    """Bring a token to each source of the phase, and run what is light."""
    bring_light(control, phase)


@part
def run_light(control: int, waiting: int, count: int) -> None:
    """Run light tasks and those that become ready by them, the newest first."""
    # As workers do: additions have the same bits here.
    mode = float_mode()
    set_float_mode(mode | FLUSH)
    # As workers, it leaves between tasks once the flag is up.
    while count > 0 and load_relaxed(control + STOP) == 0:
        count -= 1
        record = record_of(control, longs(waiting)[count])
        # As in `worker.execute`, in the same order and for the same reasons.
        store_relaxed(record + COUNTER, longs(record + JOINS)[0])
        # Light kernels use no memory of a worker: the number is nobody's.
        call_kernel(
            longs(record + KERNEL)[0], longs(record + ARGUMENTS)[0], longs(control + WORKERS)[0]
        )
        count = hand_out(control, longs(record + FIRST)[0], longs(record + LAST)[0], waiting, count)
        if longs(record + GROUP)[0] >= 0:
            complete(control, longs(record + GROUP)[0])
    set_float_mode(mode)


@part
def hand_out(control: int, place: int, last: int, waiting: int, count: int) -> Any:
    """Bring a token to each entry; light tasks that became ready join those that wait, others go to the injector.

    Return how many light ones wait now, of which there were `count`.
    """
    injector = longs(control + QUEUES)[0] + longs(control + WORKERS)[0] * QUEUE_BYTES
    pushed = 0
    while place < last:
        entry = ints(place)[0]
        place += 4
        if arrive(control, entry):
            if longs(record_of(control, entry) + LIGHT)[0] != 0 and count < WAITING:
                longs(waiting)[count] = entry
                count += 1
            else:
                # The lock only now, which makes this thread the injector's owner: mostly there is nothing to push.
                while pushed == 0 and not swap_acq_rel(control + RELEASING, 0, 1):
                    sched_yield()
                push(injector, entry & BAND_MASK, entry)
                pushed += 1
    if pushed > 0:
        store_release(control + RELEASING, 0)
        wake(control, min(pushed, 2))
    return count
