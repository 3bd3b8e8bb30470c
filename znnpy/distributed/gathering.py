"""Small values of all ranks for all, in rounds: each tells one other all that it knows, twice as much each time.

After ceil(log2 P) rounds every rank has all (Bruck et al. 1997), and none has spoken with more than that many others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from znnpy.distributed.serialization import joined, split


@dataclass
class _Exchange:
    """What is known of one exchange: values of ranks from this one on upwards, and what has come for later rounds."""

    known: list[bytes] = field(default_factory=list)
    heard: dict[int, bytes] = field(default_factory=dict)
    round: int = 0
    then: Callable[[list[bytes]], object] | None = None
    """None until this rank takes part."""


class Gathering:
    """One rank's part in all exchanges; `tell` sends bytes to a rank, in order. Not thread-safe.

    All ranks take part in the same exchanges in the same order; any number of them may be under way.
    """

    def __init__(self, rank: int, size: int, tell: Callable[[int, bytes], None]) -> None:
        self._rank, self._size, self._tell = rank, size, tell
        self._distances = [1 << number for number in range((size - 1).bit_length())]
        # In each round another rank speaks, so its number says which one it is.
        self._rounds = {(rank + far) % size: number for number, far in enumerate(self._distances)}
        self._exchanges = defaultdict[int, _Exchange](_Exchange)
        self._begun, self._come = 0, [0] * len(self._distances)

    def begin(self, value: bytes, then: Callable[[list[bytes]], object]) -> None:
        """Take part in the next exchange; call `then` with the values of all, by rank, when they have come."""
        number, self._begun = self._begun, self._begun + 1
        it = self._exchanges[number]
        it.known, it.then = [value], then
        self._say(it)
        self._go_on(number)

    def hear(self, source: int, data: bytes) -> None:
        """Take what a rank tells: of its messages each belongs to the next exchange."""
        turn = self._rounds[source]
        number, self._come[turn] = self._come[turn], self._come[turn] + 1
        self._exchanges[number].heard[turn] = data
        self._go_on(number)

    def _go_on(self, number: int) -> None:
        it = self._exchanges[number]
        # What comes before this rank takes part waits for it.
        if it.then is None:
            return
        while it.round in it.heard:
            it.known += split(it.heard.pop(it.round))
            it.round += 1
            self._say(it)
        if it.round == len(self._distances):
            del self._exchanges[number]
            first = self._size - self._rank
            it.then(it.known[first:] + it.known[:first])

    def _say(self, it: _Exchange) -> None:
        if it.round < len(self._distances):
            far = self._distances[it.round]
            # Of the last round only what the other one lacks.
            told = it.known[: min(far, self._size - far)]
            self._tell((self._rank - far) % self._size, joined(told))
