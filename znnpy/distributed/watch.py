"""Whether all ranks live: one that falls silent or fails ends all the others, with one message that says why.

Every rank sends rank 0 a beat each second, and rank 0 sends one to every rank, in the communication threads.
Silence is counted in beats of one's own, so that a run which was suspended as a whole goes on.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from znnpy.distributed.world import FIRST_FREE_CHANNEL
from znnpy.errors import reason, screenful

if TYPE_CHECKING:
    from znnpy.distributed.messenger import Messenger

BEATS = FIRST_FREE_CHANNEL
"""The channel of all that is told here: nothing for a beat; for an end, its exit status and words."""
BEAT = 1.0  # seconds
SILENCE = 15  # beats without a word after which a rank counts as dead
GRACE = 1.0  # seconds that rank 0 gives the others to leave
GO_ON = "the last checkpoint is good; run the same command again to go on"
FOR_RANK_0 = 5.0  # seconds after which others leave without an order
_SHOW_CURSOR = "\x1b[?25h"


class Watch:
    """One rank's part in it, from `start` until the messenger is closed. `names`: of the ranks, for people."""

    def __init__(self, messenger: Messenger, names: Sequence[str]) -> None:
        self._messenger, self._names = messenger, names
        self._first = messenger.rank == 0
        self._watched = range(1, messenger.size) if self._first else range(1)
        self._silence = dict.fromkeys(self._watched, 0)
        self._over = False

    def start(self) -> None:
        """Begin; every rank does."""
        self._messenger.listen(BEATS, self._hear)
        self._messenger.failed = self._broken
        self._messenger.every(BEAT, self._beat)

    def end(self, words: str, status: int = 1) -> None:
        """End all ranks, this one too, from any thread but the messenger's. Rank 0 says `words`, if any.

        Returns when the others are told: this process is left a second later, or when rank 0 says so.
        """
        told = threading.Event()

        def tell() -> None:
            self._end(words, status)
            told.set()

        self._messenger.call(tell)
        told.wait(GRACE)

    def _beat(self) -> None:
        for rank in () if self._over else self._watched:
            self._messenger.tell(rank, BEATS, b"")
            self._silence[rank] += 1
            if self._silence[rank] > SILENCE:
                seconds = f"{SILENCE * BEAT:.0f} s"
                self._end(f"{self._names[rank]} has not answered for {seconds}; {GO_ON}", 1)
                _later(GRACE / 2, partial(_kill_all, 1))
                return

    def _hear(self, source: int, message: bytes) -> None:
        self._silence[source] = 0
        if not message:
            return
        status, _, words = message.decode().partition(" ")
        if not self._first:
            leave(int(status))
        self._end(f"{self._names[source]}: {words}", int(status))

    def _end(self, words: str, status: int) -> None:
        """In the communication thread, once: what comes later is not said any more."""
        if self._over:
            return
        self._over = True
        _later(GRACE if self._first else FOR_RANK_0, partial(leave, status))
        lost = not self._first and self._silence[0] > SILENCE
        if words and (self._first or lost):
            say(words)
        order = f"{status} {'' if self._first else words}".encode()
        for rank in self._watched:
            self._messenger.tell(rank, BEATS, order)

    def _broken(self, error: BaseException) -> None:
        """The communication thread has failed, and nobody can be told but the user."""
        say(f"{self._names[self._messenger.rank]}: {reason(error)}; {GO_ON}")
        leave(1)


def say(words: str) -> None:
    """A message for the user, as commands say theirs; a progress bar's hidden cursor comes back."""
    with suppress(OSError, ValueError):
        cursor = _SHOW_CURSOR if sys.stderr.isatty() else ""
        print(f"{cursor}znnpy: {screenful(words)}", file=sys.stderr, flush=True)


def leave(status: int) -> None:
    """End the process as it stands: every file is written beside its place and renamed."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def _later(seconds: float, what: partial[None]) -> None:
    timer = threading.Timer(seconds, what)
    timer.daemon = True
    timer.start()


def _kill_all(status: int) -> None:
    """Have the launcher end what does not listen any more."""
    with suppress(Exception):
        from mpi4py import MPI

        MPI.COMM_WORLD.Abort(status)
