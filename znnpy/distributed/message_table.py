"""Messages of a graph as compiled code serves them: requests by number, and a log of what has passed."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.scheduling.messages import ENTRY, GRAPH, LOG, begin_prepared, note_sum

from znnpy.distributed.mpi import MPI, address_of
from znnpy.distributed.transfers import Carried, Passage, Transfer
from znnpy.distributed.waits import PATIENCE

# Sizes of the library's own types: handles are ints in MPICH and pointers in Open MPI.
HANDLE, STATUS = MPI._sizeof(MPI.Request), MPI._sizeof(MPI.Status)  # bytes
KEPT_PASSAGES = (
    1 << 16
)  # latest messages whose times are kept for profiles, which bounds memory; a power of two
# Larger ones move a buffer at each look, as those of 64 KiB may over TCP.
AT_ONCE = 64 << 10
"""Bytes of messages that nobody has to look after while they are under way."""
BUSY_PATIENCE = 2
"""In place of PATIENCE where all messages are `AT_ONCE`, while all workers have tasks: each look takes from these."""
Ints = NDArray[np.int64]


class Log:
    """When each message of a rank passed, the last KEPT_PASSAGES of them; and totals of all."""

    def __init__(self) -> None:
        self._entries = np.zeros((KEPT_PASSAGES, ENTRY), np.int64)
        self._words = np.zeros(len(LOG), np.int64)
        self._words[LOG.mask] = KEPT_PASSAGES - 1
        self._words[LOG.entries] = self._entries.ctypes.data
        self.address = int(self._words.ctypes.data)

    @property
    def passages(self) -> list[Passage]:
        """Return the times of the messages that are kept, as they arrived; from any thread."""
        last = int(self._words[LOG.passed])
        places = np.arange(max(0, last - KEPT_PASSAGES), last)
        rows = self._entries[places % KEPT_PASSAGES].tolist()
        # The communication thread may have written over the first of them meanwhile, and be within one more.
        gone = max(0, int(self._words[LOG.passed]) + 1 - KEPT_PASSAGES - places[0]) if last else 0
        return [Passage(*row) for row in (rows if last < KEPT_PASSAGES else rows[gone:])]

    @property
    def carried(self) -> Carried:
        """Return the totals; from any thread."""
        passed, size, nanoseconds = self._words[[LOG.passed, LOG.bytes, LOG.seconds]].tolist()
        return Carried(passed, size, nanoseconds / 1e9)


class MessageTable:
    """What compiled code knows of a graph's messages.

    `control`: the control block of the executor whose phases they release; None where Python is to release them: their
    numbers then come by `done`. The block is kept, so that a late message finds memory.
    """

    def __init__(self, transfers: Sequence[Transfer], control: Ints | None, log: Log) -> None:
        self._kept = transfers, control, log
        # Rooms for all messages at once; a number is under way, left or done at most once.
        most = max(1, len(transfers))
        self._tables = np.zeros((6, most), np.int64)
        self._handles, self._ready, phases, sizes, started, numbers = self._tables
        phases[: len(transfers)] = [it.phase for it in transfers]
        sizes[: len(transfers)] = [it.bytes for it in transfers]
        self._left, self._done = np.zeros((2, most), np.int64)
        self._indices = np.zeros(most, np.int32)
        self._bytes = np.zeros((most, HANDLE + STATUS), np.uint8)
        self._words = np.zeros(len(GRAPH), np.int64)
        self.address = int(self._words.ctypes.data)
        requests = int(self._bytes.ctypes.data)
        small = max((it.bytes for it in transfers), default=0) <= AT_ONCE
        patience = BUSY_PATIENCE if small else PATIENCE
        self._fill(
            control=0 if control is None else int(control.ctypes.data),
            handle_bytes=HANDLE,
            start=address_of("MPI_Start"),
            handles=self._handles.ctypes.data,
            ready=self._ready.ctypes.data,
            phases=phases.ctypes.data,
            sizes=sizes.ctypes.data,
            started=started.ctypes.data,
            numbers=numbers.ctypes.data,
            requests=requests,
            indices=self._indices.ctypes.data,
            statuses=requests + most * HANDLE,
            left_numbers=self._left.ctypes.data,
            done_numbers=self._done.ctypes.data,
            log=log.address,
            patience=patience,
        )
        # Compiled now: the first message must not be a compilation.
        for function in (begin_prepared, note_sum):
            function.compile()

    @property
    def under_way(self) -> bool:
        """Return whether any message has been started that is not complete."""
        return bool(self._words[GRAPH.under_way])

    @property
    def served(self) -> bool:
        """Return whether compiled code releases phases."""
        return bool(self._words[GRAPH.control])

    def left(self) -> list[int]:
        """Return the numbers of posts that were left to Python since the last call, in their order."""
        return self._taken(GRAPH.left, self._left)

    def done(self) -> list[int]:
        """Return the numbers of complete messages whose release was left to Python since the last call."""
        return self._taken(GRAPH.done, self._done)

    def prepared(self, number: int, request: MPI.Prequest, *, again: bool) -> None:
        """Tell the request of a message; `again`: compiled code starts it from now on."""
        ctypes.memmove(int(self._handles.ctypes.data) + 8 * number, MPI._addressof(request), HANDLE)
        self._ready[number] = again

    def given_back(self, number: int, request: MPI.Prequest) -> None:
        """Write the handle that a message has now to its request, which is to be freed by it."""
        # Open MPI's MPI_Start replaces a handle whose last send its own buffers still hold.
        ctypes.memmove(MPI._addressof(request), int(self._handles.ctypes.data) + 8 * number, HANDLE)

    def begin(self, number: int) -> None:
        """Start a message whose request was told; raise MPI.Exception as MPI.Prequest.Start does."""
        if error := begin_prepared(self.address, number):
            raise MPI.Exception(int(error))

    def note(self, mailbox: int, number: int, started: int, arrived: int) -> None:
        """Log a sum of the library, which Python has started."""
        note_sum(mailbox, self.address, number, started, arrived)

    def _taken(self, word: int, numbers: Ints) -> list[int]:
        count, self._words[word] = int(self._words[word]), 0
        found: list[int] = numbers[:count].tolist()
        return found

    def _fill(self, **values: int) -> None:
        for name, value in values.items():
            self._words[getattr(GRAPH, name)] = value
