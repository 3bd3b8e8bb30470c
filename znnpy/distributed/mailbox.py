"""The mailbox: memory in which tasks post numbers of messages for the communication thread."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.scheduling import mailbox as native

from znnpy.distributed.transfers import NUMBERS

Ints = NDArray[np.int64]


class Mailbox:
    """A ring of posted numbers: tasks write, one thread reads. Its address stays as long as it lives."""

    def __init__(self) -> None:
        # A line more than needed, to begin on one.
        words = (native.SLOTS + native.LINE) // 8 + 2 * NUMBERS
        space = np.zeros(words, np.int64)
        first = -(space.ctypes.data // 8) % (native.LINE // 8)
        self._words: Ints = space[first : first + native.SLOTS // 8 + 2 * NUMBERS]
        # `NUMBERS` is a power of two: an index wraps by an `and`.
        self._words[native.MASK // 8] = NUMBERS - 1
        self._posted = self._words[native.SLOTS // 8 + NUMBERS :]
        # As many as one call takes; the rest comes with the next one.
        self._taken = np.zeros(256, np.int64)
        self.address = int(self._words.ctypes.data)
        native.prepare(self.address)
        for function in (native.take, native.wake):
            function.compile()

    def take(self) -> list[int]:
        """Return numbers posted since the last call, in their order; some of them if they are many."""
        taken = self._taken
        count = native.take(self.address, int(taken.ctypes.data), len(taken))
        found: list[int] = taken[:count].tolist() if count else []
        return found

    def posted_ns(self, number: int) -> int:
        """Return when a number was posted last: CLOCK_MONOTONIC, nanoseconds."""
        return int(self._posted[number])

    def wake(self) -> None:
        """End the reader's nap, from any thread."""
        native.wake(self.address)
