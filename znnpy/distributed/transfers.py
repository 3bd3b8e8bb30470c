"""Descriptions of messages between ranks: transfers of a graph, parcels, times of passage, totals, test delays."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

# A bound on the mailbox, whose ring has a slot for each number; a power of two, as indices wrap by an `and`.
NUMBERS = 1 << 16
"""Messages of one graph at most: 0 to NUMBERS - 1."""


class Way(Enum):
    """The use of a message's memory: it is sent, received into, or summed in place."""

    SEND = "send"
    RECEIVE = "receive"
    SUM = "sum"
    """Summed over all ranks in place by the library, in an order of its own."""


class Span(NamedTuple):
    """A piece of memory: its address and bytes."""

    address: int
    bytes: int


class Transfer(NamedTuple):
    """One message of a graph, the same in every step that posts it.

    `tag`: the same at both ends, and no other message's between the same two ranks. `phase`: what its
    completion releases. `what`: whose numbers of `number` bytes, 4 or 8, it carries, for reports. A SUM has
    one span, and no peer.
    """

    way: Way
    peer: int
    tag: int
    spans: tuple[Span, ...]
    phase: int
    what: str = ""
    number: int = 4

    @property
    def bytes(self) -> int:
        """The bytes of all spans."""
        return sum(span.bytes for span in self.spans)


class Parcel(NamedTuple):
    """Bytes for a rank, or from one: contiguous, and not to be touched until they have gone or come."""

    rank: int
    memory: memoryview


class Passage(NamedTuple):
    """The times of one message, of CLOCK_MONOTONIC in nanoseconds, and its number in the graph.

    `posted` by the task, `started` when MPI was told, `arrived` when MPI reported it complete.
    """

    number: int
    posted: int
    started: int
    arrived: int


class Carried(NamedTuple):
    """Totals of all messages of a rank so far, blocks of volumes too: number, bytes, seconds until arrival.

    Seconds count from a task's post, or from when the rank that received a block, or sent one, began to wait.
    """

    messages: int
    bytes: int
    seconds: float

    def plus(self, more: Carried) -> Carried:
        """Return the totals of both."""
        return Carried(
            self.messages + more.messages, self.bytes + more.bytes, self.seconds + more.seconds
        )

    def with_one(self, size: int, nanoseconds: int) -> Carried:
        """Return the totals with one more message, of so many bytes, that took so long."""
        return self.plus(Carried(1, size, nanoseconds / 1e9))


@dataclass
class Delays:
    """Random delays of messages, each up to `seconds`, and now and then of the whole rank: for tests."""

    seed: int
    seconds: float
    rank: int = 0

    def __post_init__(self) -> None:
        # From text, which random.Random hashes the same in every process.
        self._random = random.Random(f"{self.seed} {self.rank}")

    def of_message(self) -> float:
        """Return the seconds by which to delay the next message: none for half of them."""
        # Half of the uniform draws are negative: no delay.
        return max(0.0, self._random.uniform(-self.seconds, self.seconds))

    def of_rank(self) -> float:
        """Return the seconds for which the thread shall do nothing now: seldom any."""
        # One look in a hundred, up to four times a message's delay: enough to let others run ahead.
        return self._random.uniform(0, 4 * self.seconds) if self._random.random() < 0.01 else 0.0
