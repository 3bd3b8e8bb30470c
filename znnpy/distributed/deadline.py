"""An end of waits that have none of their own: MPI's for ranks that never come, or never end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psutil

from znnpy.distributed.launcher import announced_rank, rank_in
from znnpy.distributed.threads import start
from znnpy.distributed.watch import leave, say

TURN = 4.0  # seconds between ranks: where rank 0 is not there to speak, others have a word in turn


@contextmanager
def in_time(seconds: float, words: Callable[[], str]) -> Iterator[None]:
    """End this process with a message, if there is any, unless all that is done within is over in so many seconds.

    Rank 0 is the first to do so, at once; where the launcher then ends the others, it is the only one.
    """
    until = min(seconds + TURN * min(announced_rank(), 2), threading.TIMEOUT_MAX)
    timer = threading.Timer(until, _give_up, (words,))
    timer.daemon = True
    start(timer)
    try:
        yield
    finally:
        timer.cancel()


def stopped_here() -> str:
    """The ranks that a signal has stopped, as far as this one can see: those of its launcher on this host."""
    found = []
    with suppress(psutil.Error):
        launcher = psutil.Process().parent()
        for process in launcher.children() if launcher else ():
            if process.status() == psutil.STATUS_STOPPED:
                rank = rank_in(process.environ())
                found += [f"rank {rank} (pid {process.pid})"] if rank is not None else []
    return " and ".join(found)


def _give_up(words: Callable[[], str]) -> None:
    if text := words():
        say(text)
    leave(1)
