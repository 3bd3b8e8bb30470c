"""Idle waiting of the communication thread: compiled naps, with tests of MPI requests between them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from znnpy_kernels.scheduling.backoff import REST, TURN, rest
from znnpy_kernels.scheduling.messages import MOST

from znnpy.distributed.background_threads import turn_call
from znnpy.distributed.mailbox import Mailbox
from znnpy.distributed.message_table import HANDLE, STATUS, MessageTable
from znnpy.distributed.mpi import MPI, address_of

# Beyond the range of CLOCK_MONOTONIC, and still an int64 after a nap is added.
NEVER = 1 << 62
"""A time, in nanoseconds, that never comes."""


class Pace(NamedTuple):
    """Naps take 1 / `patience` of the time for which nothing has happened, from `shortest` to `longest`; none for
    `eager` while workers sleep. In seconds."""

    shortest: float
    longest: float
    patience: int
    eager: float


def clock_wait() -> int:
    """Return the address of the C library's wait for a semaphore by any clock, 0 where it has none."""
    wait = getattr(ctypes.CDLL(None), "sem_clockwait", None)
    return ctypes.cast(wait, ctypes.c_void_p).value or 0 if wait else 0


def system_call() -> int:
    """Return the address of the C library's function for system calls by number."""
    return ctypes.cast(ctypes.CDLL(None).syscall, ctypes.c_void_p).value or 0


class Resting:
    """Serves a graph's messages until there is something for Python: requests, or a message of a communicator."""

    def __init__(self, mailbox: Mailbox, comm: MPI.Comm, pace: Pace) -> None:
        self._mailbox, self._block = mailbox, np.zeros(len(REST), np.int64)
        self._address = int(self._block.ctypes.data)
        self._status, self._posted = np.zeros(STATUS, np.uint8), np.zeros(MOST, np.int64)
        self._turn = np.zeros(len(TURN), np.int64)
        # Room for most networks' messages under way; grown where there are more.
        self._rooms(16)
        self._fill(
            shortest=int(pace.shortest * 1e9),
            longest=int(pace.longest * 1e9),
            eager=int(pace.eager * 1e9),
            patience=pace.patience,
            posted=self._posted.ctypes.data,
            test=address_of("MPI_Testsome"),
            probe=address_of("MPI_Iprobe"),
            source=MPI.ANY_SOURCE,
            tag=MPI.ANY_TAG,
            # A word holds the handle of either library.
            comm=ctypes.c_int64(MPI._handleof(comm)).value,
            status=self._status.ctypes.data,
            wait=clock_wait(),
            system=system_call(),
            set_turn=turn_call(),
            turn=self._turn.ctypes.data,
        )
        # Compiled now: the first wait must not be a compilation.
        rest.compile()

    @property
    def active(self) -> float:
        """When anything has happened last, as of `time.monotonic`."""
        return float(self._block[REST.active]) / 1e9

    def serve(self, table: MessageTable | None) -> None:
        """Serve the messages of this graph from now on."""
        self._fill(graph=table.address if table else 0)

    def rest(self, requests: Sequence[MPI.Request], active: float, until: float) -> list[int]:
        """Wait, and return the places of requests that are complete; the GIL is released meanwhile.

        Times of `time.monotonic`: `active`, when anything has happened last, and `until`, how long it may take.
        Requests that are complete become null or inactive, and MPI.Exception is raised, as by MPI.Request.Testsome.
        """
        if len(requests) > len(self._indices):
            # Doubled, so that it is seldom made anew.
            self._rooms(2 * len(requests))
        places = [MPI._addressof(request) for request in requests]
        # Copies of the handles lie side by side, as MPI_Testsome takes an array; it changes them, so they are
        # copied back below.
        for number, place in enumerate(places):
            ctypes.memmove(self._handles + HANDLE * number, place, HANDLE)
        self._fill(
            pending=len(requests),
            found=0,
            error=0,
            active=int(active * 1e9),
            until=int(min(until * 1e9, NEVER)),
        )
        rest(self._mailbox.address, self._address)
        if self._block[REST.error]:
            raise MPI.Exception(int(self._block[REST.error]))
        # Negative (MPI_UNDEFINED) where no request was active.
        complete: list[int] = self._indices[: max(0, self._found[0])].tolist()
        for number in complete:
            # Only those: MPI sets the handles of complete requests to null, or leaves persistent ones inactive.
            ctypes.memmove(places[number], self._handles + HANDLE * number, HANDLE)
        return complete

    def _rooms(self, most: int) -> None:
        """Allocate room for so many requests at once."""
        self._indices = np.zeros(most, np.int32)
        self._bytes = np.zeros((most, HANDLE + STATUS), np.uint8)
        self._handles = int(self._bytes.ctypes.data)
        self._fill(
            requests=self._handles,
            indices=self._indices.ctypes.data,
            statuses=self._handles + most * HANDLE,
        )

    @property
    def _found(self) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """Return the number of complete requests as a C int, where a word is."""
        # MPI writes a C int, which is the word's low half on little-endian machines.
        return self._block[REST.found :].view(np.int32)

    def _fill(self, **values: int) -> None:
        for name, value in values.items():
            self._block[getattr(REST, name)] = value
