"""The mailbox: memory in which tasks post numbers of messages for the communication thread."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.scheduling import mailbox as native

from znnpy.distributed.transfers import NUMBERS

Ints = NDArray[np.int64]


class Mailbox:
    """A ring of posted numbers: tasks write, compiled code of one thread reads. Its address stays while it lives."""

    def __init__(self) -> None:
        # A line more than needed, to begin on one.
        words = (native.SLOTS + native.LINE) // 8 + 2 * NUMBERS
        space = np.zeros(words, np.int64)
        first = -(space.ctypes.data // 8) % (native.LINE // 8)
        self._words: Ints = space[first : first + native.SLOTS // 8 + 2 * NUMBERS]
        # `NUMBERS` is a power of two: an index wraps by an `and`.
        self._words[native.MASK // 8] = NUMBERS - 1
        self.address = int(self._words.ctypes.data)
        native.prepare(self.address)
        native.wake.compile()

    def wake(self) -> None:
        """End the reader's wait, from any thread."""
        native.wake(self.address)
