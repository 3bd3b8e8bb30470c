"""Starts threads that a rank needs, and runs delayed actions in a thread that was started early."""

from __future__ import annotations

import ctypes
import heapq
import itertools
import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from znnpy.distributed.errors import DistributedError

# <linux/prctl.h>; of the calling thread.
PR_SET_TIMERSLACK = 29
TIMER_SLACK = ctypes.c_ulong(1000)
"""Nanoseconds by which a sleep may end later."""

SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
"""The number of the system call by machine: the C library has no function for it before glibc 2.41."""
KEEP_POLICY = 8  # SCHED_FLAG_KEEP_POLICY of <linux/sched.h>
# The shortest that Linux grants.
TURN = 100_000
"""Nanoseconds for which a thread that takes short turns may have a core while others want it."""


class NoThreadError(DistributedError):
    """The system lets this process start no more threads."""


def start(thread: threading.Thread) -> None:
    """Start a thread; raise NoThreadError where the system refuses."""
    try:
        thread.start()
    except RuntimeError as error:
        raise NoThreadError(
            "the system lets this process start no more threads: its limits (ulimit -u, ulimit -v, those of its "
            "control group) or memory are used up"
        ) from error


def be_punctual() -> None:
    """Let the calling thread's short sleeps end when they should: Linux lets them take 50 microseconds more."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    # Other systems have no such allowance, and sleep as long as they do.
    if prctl is not None:
        prctl(PR_SET_TIMERSLACK, TIMER_SLACK)


def turn_call() -> int:
    """Return the number of Linux's sched_setattr, by which a thread's turns get their length; 0 on other systems."""
    return SCHED_SETATTR.get(platform.machine(), 0) if sys.platform == "linux" else 0


class SchedulingAttributes(ctypes.Structure):
    """`struct sched_attr` of <linux/sched/types.h>, as the first version has it."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )


def take_short_turns() -> None:
    """Let the calling thread have short turns of a core, which come sooner (Linux from 6.12 on).

    Where threads of several ranks share a core, one that asks MPI again and again would keep it for its whole turn,
    1.4 ms or more, although what it waits for is another one's: `sched_yield` gives it to threads of the same session
    alone, and launchers begin a session for each rank.
    """
    # Elsewhere, and where a policy without such turns was asked for, turns are as they are.
    if number := turn_call():
        # As it is, for the thread: the call would set it.
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        size = ctypes.sizeof(SchedulingAttributes)
        own = SchedulingAttributes(size=size, flags=KEEP_POLICY, nice=nice, runtime=TURN)
        ctypes.CDLL(None).syscall(ctypes.c_long(number), 0, ctypes.byref(own), 0)


class Later:
    """A thread, started while the system allowed it, that runs actions after a delay."""

    def __init__(self) -> None:
        self._given: SimpleQueue[tuple[float, int, Callable[[], object]]] = SimpleQueue()
        # Tells actions of one moment apart, as functions cannot be compared.
        self._order = itertools.count()
        # Started here, not when it is needed: by then the system may allow no thread.
        start(threading.Thread(target=self._live, name="znnpy later", daemon=True))

    def after(self, seconds: float, what: Callable[[], object]) -> None:
        """Run an action after so many seconds; from any thread."""
        self._given.put((time.monotonic() + seconds, next(self._order), what))

    def _live(self) -> None:
        waiting: list[tuple[float, int, Callable[[], object]]] = []
        while True:
            # None waits for the next action without end; 0 takes what is due, after what has been given
            # meanwhile.
            left = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
            try:
                heapq.heappush(waiting, self._given.get(timeout=left))
            except Empty:
                heapq.heappop(waiting)[2]()
