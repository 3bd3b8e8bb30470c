"""Small messages between ranks by channel, and blocks of volumes that all ranks exchange at once."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from znnpy.distributed.mpi import MPI
from znnpy.distributed.pending import Pending
from znnpy.distributed.transfers import Carried, Parcel

AT_ONCE = 1 << 13
"""Bytes up to which a small message is received where it is found: it is there with its head, and costs no request.

Below what libraries send only once it is asked for (16 KiB): the thread must not wait for a rank that has ended."""

Listener = Callable[[int, bytes], None]
"""Takes the rank that a small message came from, and the message; called in the communication thread."""


@dataclass
class _Arrival:
    """A small message that is being received."""

    channel: int
    room: bytearray
    complete: bool = False


class SmallMessages:
    """Those of one communicator, in the communication thread; messages of a channel to a rank keep their order."""

    def __init__(self, comm: MPI.Comm, pending: Pending) -> None:
        self._comm, self._pending = comm, pending
        self.listeners: dict[int, Listener] = {}
        self._arriving: dict[int, deque[_Arrival]] = defaultdict(deque)
        self._status = MPI.Status()

    def tell(self, rank: int, channel: int, message: bytes) -> None:
        """Send a message."""
        # Straight to the listener: MPI need not send to oneself.
        if rank == self._comm.rank:
            self.listeners[channel](rank, message)
            return
        request = self._comm.Isend([message, MPI.BYTE], rank, channel)
        # Most have gone at once, and need no look that finds it.
        if request.Test():
            self._pending.active = time.monotonic()
            return
        # The message must not be freed before MPI has sent it, so the callback holds it.
        self._pending.wait_for(request, partial(_delivered, message))

    def receive(self) -> None:
        """Receive what has come, and pass it on."""
        status = self._status
        # A matched probe: the message is taken from the queue with it, so no other receive can get it.
        while message := self._comm.Improbe(status=status):
            source = status.source
            arrival = _Arrival(status.tag, bytearray(status.Get_count(MPI.BYTE)))
            # In the order of probes, which is that of sending; receives may be complete in another order.
            self._arriving[source].append(arrival)
            if len(arrival.room) <= AT_ONCE:
                message.Recv([arrival.room, MPI.BYTE])
                self._told(source, arrival)
                continue
            request = message.Irecv([arrival.room, MPI.BYTE])
            self._pending.wait_for(request, partial(self._told, source, arrival))

    def _told(self, source: int, arrival: _Arrival) -> None:
        """Pass on what has come from a rank, in the order in which it was sent."""
        arrival.complete = True
        waiting = self._arriving[source]
        # A message that is complete waits for earlier ones of its rank.
        while waiting and waiting[0].complete:
            first = waiting.popleft()
            self.listeners[first.channel](source, bytes(first.room))


class Swaps:
    """Exchanges of blocks over one communicator, and totals of them."""

    def __init__(self, comm: MPI.Comm, pending: Pending) -> None:
        self._comm, self._pending = comm, pending
        self.carried = Carried(0, 0, 0.0)

    def swap(
        self, out: Parcel | None, into: Parcel | None, began: int, then: Callable[[], None]
    ) -> None:
        """Send a block and receive one, with all ranks at once; `began`: when somebody began to wait for it."""
        # All ranks take part, most of them with nothing: a collective needs no agreement on who meets whom.
        request = self._comm.Ialltoallv(self._side(out), self._side(into))
        sizes = [parcel.memory.nbytes for parcel in (out, into) if parcel]

        def passed() -> None:
            for size in sizes:
                self.carried = self.carried.with_one(size, time.monotonic_ns() - began)
            then()

        self._pending.wait_for(request, passed)

    def _side(self, parcel: Parcel | None) -> list[object]:
        """Return one's own part in an exchange among all ranks: one parcel at most."""
        counts = [0] * self._comm.size
        if parcel:
            counts[parcel.rank] = parcel.memory.nbytes
        return [parcel.memory if parcel else bytearray(), counts, [0] * self._comm.size, MPI.BYTE]


def _delivered(message: bytes) -> None:
    """Do nothing more: the message was kept until now."""
