"""How the communication thread waits: in Python while ranks meet, in compiled code as soon as there are tasks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from znnpy.distributed.mpi import MPI
from znnpy.distributed.pending import Pending
from znnpy.distributed.transfers import Carried, Passage

if TYPE_CHECKING:
    from znnpy.distributed.backoff import Resting
    from znnpy.distributed.mailbox import Mailbox
    from znnpy.distributed.message_table import Log, MessageTable

# Seconds: waits lengthen by an eighth, and idle ranks cost little of a core (docs/design/distributed.md).
SHORTEST_SLEEP, LONGEST_SLEEP = 50e-6, 2e-3
PATIENCE = 8
"""A sleep takes 1 / PATIENCE of the time for which nothing has happened."""
EAGER = 3e-4
"""Seconds without anything new for which it asks without sleeping while workers have nothing to do."""


class Waits:
    """The waits of a rank, the mailbox that ends them, and the log of what has passed meanwhile.

    `control`: the communicator whose messages end a wait.
    """

    def __init__(self, control: MPI.Comm) -> None:
        self._control = control
        self._mailbox: Mailbox | None = None
        self._resting: Resting | None = None
        self._log: Log | None = None

    @property
    def address(self) -> int:
        """Where tasks post: the word `mailbox` of `post`; compiles the reading code once there are tasks."""
        # Only where there are tasks: loading compiled code would delay the moment at which ranks meet.
        if self._mailbox is None:
            from znnpy.distributed.backoff import Pace, Resting
            from znnpy.distributed.mailbox import Mailbox

            self._mailbox = Mailbox()
            pace = Pace(SHORTEST_SLEEP, LONGEST_SLEEP, PATIENCE, EAGER)
            self._resting = Resting(self._mailbox, self._control, pace)
        return self._mailbox.address

    @property
    def log(self) -> Log:
        """The log of messages of tasks, begun when it is first asked for."""
        if self._log is None:
            from znnpy.distributed.message_table import Log

            self._log = Log()
        return self._log

    @property
    def passages(self) -> Sequence[Passage]:
        """The times of the latest messages of tasks, as they arrived."""
        return self._log.passages if self._log else ()

    @property
    def carried(self) -> Carried:
        """Totals of all messages of tasks so far."""
        return self._log.carried if self._log else Carried(0, 0, 0.0)

    def wake(self) -> None:
        """End a wait, or the next one, from any thread."""
        if self._mailbox:
            # Without a mailbox the thread sleeps for LONGEST_SLEEP at most, and sees the word then.
            self._mailbox.wake()

    def serve(self, table: MessageTable | None) -> None:
        """Serve the messages of this graph from now on."""
        if self._resting:
            self._resting.serve(table)

    def rest(self, pending: Pending) -> Sequence[int]:
        """Sleep until something has happened; return the places of requests that are complete."""
        until = pending.until
        if self._resting:
            found = self._resting.rest(pending.requests, pending.active, until)
            pending.active = self._resting.active
            return found
        # In Python only until there are tasks: then messages are few, and compiled code need not be loaded.
        if complete := MPI.Request.Testsome(pending.requests) if pending.requests else None:
            return complete
        now = time.monotonic()
        # An eighth of what was waited for: a message is late by an eighth of its own time, and long waits cost
        # little.
        wanted = min(max(SHORTEST_SLEEP, (now - pending.active) / PATIENCE), LONGEST_SLEEP)
        time.sleep(max(0.0, min(wanted, until - now)))
        return ()
