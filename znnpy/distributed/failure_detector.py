"""Detects failed ranks by heartbeats: one that falls silent or fails ends all others, with one message.

Every rank sends rank 0 a beat each second, and rank 0 sends one to every rank, in the communication threads.
Silence is counted in beats of one's own, so that a run which was suspended as a whole goes on.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from znnpy.distributed.background_threads import Later
from znnpy.distributed.ending import GRACE, kill_all, leave
from znnpy.distributed.errors import DistributedError, traced
from znnpy.distributed.world import FIRST_FREE_CHANNEL, World
from znnpy.errors import reason, screenful, told

BEATS = FIRST_FREE_CHANNEL
"""The channel of beats (empty messages) and of ends (exit status and message)."""
# Short beside SILENCE, so that one lost second ends nobody; a beat costs an empty message.
BEAT = 1.0  # seconds
# 15 beats: longer than what a busy host or file system takes from a process now and then, and short beside the
# time of a run.
SILENCE = 15  # beats without a word after which a rank counts as dead
# What a user can do next, at the end of each message.
GO_ON = "the last checkpoint is good; run the same command again to go on"
# Longer than what rank 0 needs to receive the error, say it and end all.
FOR_RANK_0 = 5.0  # seconds after which others leave without an order
# Progress bars hide the cursor; a process that leaves by `_exit` has nobody to show it again.
_SHOW_CURSOR = "\x1b[?25h"


class Watch:
    """One rank's part in failure detection, from `start` to `stop`."""

    def __init__(self, world: World, debug: bool = False) -> None:
        self._world, self._messenger, self._debug = world, world.messenger, debug
        self._names: Sequence[str] = [f"rank {rank}" for rank in range(world.size)]
        self._first = world.rank == 0
        self._watched = range(1, world.size) if self._first else range(1)
        self._silence = dict.fromkeys(self._watched, 0)
        self._over, self._words, self._reporting = False, "", False
        self._later = Later()  # now: an end may come because no thread can be started any more

    def start(self, name: str) -> None:
        """Start; every rank does, and tells the others its name in messages."""
        # A rank that has all names may send a beat, or its end, before this one has them: that waits, or this rank
        # would end as one that has not met the others.
        early = list[tuple[int, bytes]]()
        self._messenger.listen(BEATS, lambda source, message: early.append((source, message)))
        self._messenger.failed = self._broken
        self._names = self._world.exchange(name)

        def listen() -> None:
            self._messenger.listen(BEATS, self._hear)
            for source, message in early:
                self._hear(source, message)

        self._messenger.call(listen)
        self._messenger.every(BEAT, self._beat)

    def stop(self) -> None:
        """Send no more beats after what this rank tells next: ranks that have left do not receive them."""
        self._messenger.call(self._stop)

    def end(self, error: BaseException, status: int) -> None:
        """End all ranks for an error of this one, from any thread but the messenger's.

        On rank 0 the caller reports the error; that of another rank is reported by rank 0. Returns when all are told:
        this process is left soon, if it does not end by itself.
        """
        done = threading.Event()

        def tell() -> None:
            if str(error) == self._words or not isinstance(error, DistributedError):
                # Rank 0 has one to say itself, from now on: it may have been busy until just before it is left.
                self._reporting, self._words = bool(self._words), ""
            self._end("" if self._first else self._explained(error), status)
            done.set()

        self._messenger.call(tell)
        # A messenger that has failed never sets it.
        done.wait(GRACE)

    def _explained(self, error: BaseException) -> str:
        """Return what is told of an error; when debugging, its traceback, each line with this rank's number."""
        if not self._debug:
            return told(error)
        return f"\n{traced(error, self._world.rank)}"

    def _stop(self) -> None:
        self._over = True

    def _beat(self) -> None:
        for rank in () if self._over else self._watched:
            self._messenger.tell(rank, BEATS, b"")
            # Counted by one's own beats, not by time: a process that was suspended has counted none.
            self._silence[rank] += 1
            if self._silence[rank] > SILENCE:
                self._lose(rank)
                return

    def _lose(self, rank: int) -> None:
        say(f"{self._names[rank]} has not answered for {SILENCE * BEAT:.0f} s; {GO_ON}")
        # The silent rank does not hear it: the launcher must end it.
        self._end("", 1)
        self._later.after(0, partial(kill_all, 1))

    def _hear(self, source: int, message: bytes) -> None:
        self._silence[source] = 0
        if not message:
            return
        status, _, words = message.decode().partition(" ")
        if self._first:
            self._end(f"{self._names[source]}: {words}", int(status))
        else:
            self._over = True
            self._world.fail(DistributedError("another rank has failed"))
            # Rank 0 has a word to say before.
            self._later.after(FOR_RANK_0, partial(leave, int(status)))

    def _end(self, words: str, status: int) -> None:
        """End, in the communication thread, once: later errors are not reported.

        On rank 0 the words are an error for whoever waits for other ranks, and printed a little later if nobody does.
        """
        # Once: what follows from an error on other ranks is no news.
        if self._over:
            return
        self._over = True
        for rank in self._watched:
            self._messenger.tell(rank, BEATS, f"{status} {words}".encode())
        if self._first and words:
            self._words = words
            self._world.fail(DistributedError(words))
        # Others stay for as long as rank 0 may take to order their end.
        self._later.after(GRACE if self._first else FOR_RANK_0, partial(self._leave, status))

    def _leave(self, status: int) -> None:
        if self._reporting:
            self._reporting = False
            # Before the others leave, as their launcher may kill this one then.
            self._later.after(FOR_RANK_0 - 2 * GRACE, partial(self._leave, status))
            return
        if self._words:
            say(self._words, whole=self._debug)
        leave(status)

    def _broken(self, error: BaseException) -> None:
        """Handle a failure of the communication thread: only the user can be told."""
        why = self._explained(error) if self._debug else reason(error)
        say(f"rank {self._world.rank}: {why}; {GO_ON}", whole=self._debug)
        kill_all(1)
        leave(1)


def say(words: str, whole: bool = False) -> None:
    """Print a message as commands do; a progress bar's hidden cursor comes back."""
    with suppress(OSError, ValueError):
        cursor = _SHOW_CURSOR if sys.stderr.isatty() else ""
        # With its newline in one call, or another rank's words may stand between.
        sys.stderr.write(f"{cursor}znnpy: {words if whole else screenful(words)}\n")
        sys.stderr.flush()
