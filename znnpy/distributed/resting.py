"""What the communication thread does while nothing happens: naps, and questions to MPI between them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
from znnpy_kernels.scheduling.resting import REST, rest

from znnpy.distributed.mailbox import Mailbox
from znnpy.distributed.mpi import MPI, address_of

NEVER = 1 << 62
HANDLE, STATUS = MPI._sizeof(MPI.Request), MPI._sizeof(MPI.Status)  # bytes


class Resting:
    """Waits for a post to a mailbox, complete requests, or a message of a communicator."""

    def __init__(self, mailbox: Mailbox, comm: MPI.Comm, pace: Sequence[float]) -> None:
        self._mailbox, self._block = mailbox, np.zeros(len(REST), np.int64)
        self._address = int(self._block.ctypes.data)
        self._pace = (np.array(pace) * 1e9).astype(np.int64)
        self._status = np.zeros(STATUS, np.uint8)
        self._rooms(16)
        self._fill(
            pace=self._pace.ctypes.data,
            paces=len(self._pace),
            test=address_of("MPI_Testsome"),
            probe=address_of("MPI_Iprobe"),
            source=MPI.ANY_SOURCE,
            tag=MPI.ANY_TAG,
            comm=ctypes.c_int64(MPI._handleof(comm)).value,
            status=self._status.ctypes.data,
        )
        rest.compile()

    def rest(
        self, requests: Sequence[MPI.Request], naps: int, until: float
    ) -> tuple[list[int], int]:
        """Places of requests that are complete, and `naps` with those of now; the GIL is free meanwhile.

        `naps`: how many there were since anything happened. At most until a time of `time.monotonic`. Requests
        that are complete are null, or inactive, as by MPI.Request.Testsome; MPI.Exception as by that.
        """
        if len(requests) > len(self._indices):
            self._rooms(2 * len(requests))
        places = [MPI._addressof(request) for request in requests]
        for number, place in enumerate(places):
            ctypes.memmove(self._handles + HANDLE * number, place, HANDLE)
        self._fill(
            pending=len(requests), found=0, error=0, naps=naps, until=int(min(until * 1e9, NEVER))
        )
        rest(self._mailbox.address, self._address)
        if self._block[REST.error]:
            raise MPI.Exception(int(self._block[REST.error]))
        complete: list[int] = self._indices[: max(0, self._found[0])].tolist()
        for number in complete:
            ctypes.memmove(places[number], self._handles + HANDLE * number, HANDLE)
        return complete, int(self._block[REST.naps])

    def _rooms(self, most: int) -> None:
        """For so many requests at once."""
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
        """An int of C, where a word is."""
        return self._block[REST.found :].view(np.int32)

    def _fill(self, **values: int) -> None:
        for name, value in values.items():
            self._block[getattr(REST, name)] = value
