"""What the communication thread is told of messages, and what it tells of them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

NUMBERS = 1 << 16
"""Messages of one graph at most: 0 to NUMBERS - 1."""


class Way(Enum):
    """What becomes of a message's memory."""

    SEND = "send"
    RECEIVE = "receive"
    SUM = "sum"
    """Summed over all ranks in place by the library, in an order of its own."""


class Span(NamedTuple):
    """Memory: its address and how many bytes."""

    address: int
    bytes: int


class Transfer(NamedTuple):
    """One message of a graph, the same in every step that posts it.

    `tag`: the same at both ends, and no other message's between the same two ranks. `phase`: what its
    completion releases. `what`: whose numbers of `number` bytes, 4 or 8, it carries, for reports. A SUM is of
    one span, and of no peer.
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
        """Size of all spans."""
        return sum(span.bytes for span in self.spans)


class Parcel(NamedTuple):
    """Bytes for a rank, or from one: contiguous, and for nobody else until they have gone or come."""

    rank: int
    memory: memoryview


class Passage(NamedTuple):
    """One message on its way: its number in the graph, and times of CLOCK_MONOTONIC in nanoseconds.

    `posted` by the task, `started` when MPI was told, `arrived` when MPI said that it is complete.
    """

    number: int
    posted: int
    started: int
    arrived: int


class Carried(NamedTuple):
    """All messages of a rank so far, blocks of volumes too: their bytes, and seconds to the arrival, added up.

    From a task's post, or from when the rank that received a block, or sent one, began to wait.
    """

    messages: int
    bytes: int
    seconds: float

    def and_(self, passage: Passage, transfer: Transfer) -> Carried:
        """With one more."""
        return self.with_one(transfer.bytes, passage.arrived - passage.posted)

    def with_one(self, size: int, nanoseconds: int) -> Carried:
        """With one more, of so many bytes, that took so long."""
        seconds = nanoseconds / 1e9
        return Carried(self.messages + 1, self.bytes + size, self.seconds + seconds)


@dataclass
class Delays:
    """Random delays of messages, each up to `seconds`, and now and then of the whole rank: for tests."""

    seed: int
    seconds: float
    rank: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(f"{self.seed} {self.rank}")

    def of_message(self) -> float:
        """Seconds by which the next message is held back: none for half of them."""
        return max(0.0, self._random.uniform(-self.seconds, self.seconds))

    def of_rank(self) -> float:
        """Seconds for which the thread does nothing now: seldom any."""
        return self._random.uniform(0, 4 * self.seconds) if self._random.random() < 0.01 else 0.0
