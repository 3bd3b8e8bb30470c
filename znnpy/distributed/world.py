"""The world of ranks as one of them sees it: rank, size, exchange, broadcast, moving memory, aborting."""

from __future__ import annotations

import sys
from collections import deque
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from znnpy.distributed.ending import kill_all
from znnpy.distributed.errors import DistributedError, traced
from znnpy.distributed.gathering import Gathering
from znnpy.distributed.serialization import Value, all_unpacked, packed
from znnpy.distributed.transfers import Delays, Parcel

if TYPE_CHECKING:
    from znnpy.distributed.communication_thread import Messenger

# The rest belongs to others: beats, blocks.
EXCHANGED, FIRST_FREE_CHANNEL = range(2)
"""Channels of small messages: values that are exchanged; others may take the rest."""


class World:
    """`rank` of `size` ranks, numbered from 0; alone without a messenger, and then nothing is ever sent.

    All ranks must call `exchange`, `broadcast` and `close` in the same order. One caller at a time.
    """

    def __init__(self, messenger: Messenger | None = None) -> None:
        self.rank, self.size = (messenger.rank, messenger.size) if messenger else (0, 1)
        self._messenger = messenger
        self._expected: deque[Future[list[Value]]] = deque()
        self._moving: Future[None] | None = None
        self._failure: BaseException | None = None
        if messenger:
            # The listener before the thread starts: the first message may be there already.
            tell = partial(_on_channel, messenger)
            self._gathering = Gathering(self.rank, self.size, tell)
            messenger.listen(EXCHANGED, self._gathering.hear)
            messenger.failed = self.fail
            messenger.start()

    @classmethod
    def open(cls, delays: Delays | None = None) -> World:
        """Return the world that an MPI launcher has made; all its processes must open it.

        Raises ModuleNotFoundError without mpi4py, DistributedError where MPI lets only one thread use it.
        """
        from znnpy.distributed.communication_thread import Messenger
        from znnpy.distributed.mpi import begin

        begin()

        messenger = Messenger(delays)
        # Alone: a launcher may start one rank, and nothing needs a thread then.
        return cls(messenger) if messenger.size > 1 else cls()

    @property
    def messenger(self) -> Messenger:
        """The communication thread; raises DistributedError for a process alone."""
        if self._messenger is None:
            raise DistributedError("there is one rank only, and nobody to send to")
        return self._messenger

    def begin_exchange(self, value: Value) -> Future[list[Value]]:
        """Send all ranks a value; the future holds the values of all, by rank, when every rank has called it."""
        pending: Future[list[Value]] = Future()
        if self._messenger is None:
            pending.set_result([value])
            return pending
        # Before it is told: the answer may come at once, from the other thread.
        self._expected.append(pending)
        # After it is entered: whoever fails the world meanwhile finds it, or is found here.
        if self._failure:
            raise self._failure
        told = packed(value)
        self._messenger.call(partial(self._gathering.begin, told, self._distribute))
        return pending

    def exchange(self, value: Value) -> list[Value]:
        """Send all ranks a value; return the values of all, by rank (an all-gather)."""
        return self.begin_exchange(value).result()

    def broadcast(self, value: Value = None) -> Value:
        """Return rank 0's value on all ranks; the others' are ignored."""
        everyone = self.exchange(value if self.rank == 0 else None)
        return everyone[0]

    def move(self, out: Parcel | None, into: Parcel | None) -> None:
        """Send memory to at most one rank and receive some from at most one; all ranks call it together and wait.

        No further memory is allocated: large transfers are made in slices by the caller.
        """
        pending: Future[None] = Future()
        # Before the failure is looked at, for the same reason.
        self._moving = pending
        if self._failure:
            raise self._failure
        self.messenger.swap(out, into, partial(_settle, pending))
        pending.result()

    def abort(self, error: BaseException) -> None:
        """End all processes of the run, without any cleaning up, and print where an error comes from.

        Does not return with a messenger. SystemExit, which is no error, gives its status alone.
        """
        if self._messenger:
            if not isinstance(error, SystemExit):
                print(traced(error, self.rank), file=sys.stderr, flush=True)
            code = error.code if isinstance(error, SystemExit) else 1
            kill_all(code if isinstance(code, int) else int(code is not None))

    def fail(self, error: BaseException) -> None:
        """Raise this error in all that wait for other ranks, now or later. From any thread."""
        # First the mark, then those who wait: whoever comes in between sees the mark.
        self._failure = error
        while self._expected:
            self._expected.popleft().set_exception(error)
        if self._moving:
            _settle(self._moving, error)

    def close(self) -> None:
        """Wait until every rank has called it, and end the communication thread."""
        if self._messenger and not self._failure:
            self.exchange(None)
            self._messenger.close()

    def __enter__(self) -> World:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abort(error)

    def _distribute(self, told: list[bytes]) -> None:
        if self._failure is None:  # else nobody waits any more
            self._expected.popleft().set_result(all_unpacked(told))


def _on_channel(messenger: Messenger, rank: int, message: bytes) -> None:
    # Without a word and a waking: all of an exchange runs in that thread.
    messenger.tell_at_once(rank, EXCHANGED, message)


def _settle(pending: Future[None], error: BaseException | None = None) -> None:
    """Set the result or error once; later calls change nothing."""
    if pending.done():
        return
    if error:
        pending.set_exception(error)
    else:
        pending.set_result(None)
