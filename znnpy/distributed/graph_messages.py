"""The messages of a graph in the communication thread: made, begun, summed by the library, and given back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from znnpy.distributed.errors import DistributedError
from znnpy.distributed.mpi import MPI
from znnpy.distributed.pending import Pending
from znnpy.distributed.transfers import NUMBERS, Delays, Span, Transfer, Way
from znnpy.distributed.waits import Waits

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Links(NamedTuple):
    """What messages of graphs go over: communicators for messages and the library's sums, what is pending, waits."""

    data: MPI.Comm
    sums: MPI.Comm
    pending: Pending
    waits: Waits
    delays: Delays | None

    def delay(self) -> float:
        """Return the seconds by which to delay the next message: in tests alone more than 0."""
        return self.delays.of_message() if self.delays else 0.0


class GraphMessages:
    """The messages of a graph and their progress; sums go through their numbers again and again.

    `control`: the executor's control block, by which compiled code releases phases; `release`: does it where there is
    none; `finish`: waits for all steps that were begun.
    """

    def __init__(
        self,
        transfers: Sequence[Transfer],
        control: NDArray[np.int64] | None,
        release: Callable[[int], None],
        finish: Callable[[], None],
        links: Links,
    ) -> None:
        # Only where there are tasks, as in `Waits`.
        from znnpy.distributed.message_table import MessageTable

        # Before the thread turns to this graph: from here on its waits are compiled code, which serves messages.
        self._mailbox = links.waits.address
        # What tests delay goes through Python, which delays it.
        self.table = MessageTable(transfers, None if links.delays else control, links.waits.log)
        self.transfers, self.finish = transfers, finish
        self._release, self._links = release, links
        self._prepared: dict[int, MPI.Prequest] = {}
        self._sums_posted: set[int] = set()  # that have not begun
        self._sum_next = 0
        self._sums_in_order = [n for n, it in enumerate(transfers) if it.way is Way.SUM]

    def look(self) -> None:
        """Begin the posts and release the completions that compiled code left to Python."""
        links = self._links
        for number in self.table.left():
            links.pending.later(links.delay(), partial(self._begin, number))
        for number in self.table.done():
            links.pending.later(links.delay(), partial(self._release, self.transfers[number].phase))

    def give_back(self) -> None:
        """Free the requests, which are complete."""
        for number, request in self._prepared.items():
            self.table.given_back(number, request)
            request.Free()

    def _begin(self, number: int) -> None:
        if self.transfers[number].way is Way.SUM:
            self._sums_posted.add(number)
            self._begin_sums()
            return
        # Made at the first step, then started again and again: a persistent request costs MPI less than a new
        # one, and compiled code can start it.
        if number not in self._prepared:
            request = self._prepared[number] = self._prepare(self.transfers[number])
            self.table.prepared(number, request, again=self._links.delays is None)
        self.table.begin(number)
        self._links.pending.active = time.monotonic()

    def _begin_sums(self) -> None:
        """Start sums in the order of their numbers: all ranks must start them in one order."""
        while self._sums_posted:
            # MPI matches collectives by their order alone; a rank that started them as they are posted would
            # add up different layers.
            number = self._sums_in_order[self._sum_next]
            if number not in self._sums_posted:
                return
            self._sums_posted.remove(number)
            # Round and round: each step posts each of them once.
            self._sum_next = (self._sum_next + 1) % len(self._sums_in_order)
            transfer = self.transfers[number]
            room = MPI.buffer.fromaddress(*transfer.spans[0])
            kind = MPI.FLOAT if transfer.number == 4 else MPI.DOUBLE
            # In place, without a copy of the gradients.
            request = self._links.sums.Iallreduce(
                MPI.IN_PLACE, [room, transfer.bytes // transfer.number, kind]
            )
            then = partial(self._added, number, time.monotonic_ns())
            self._links.pending.wait_for(request, then)

    def _added(self, number: int, started: int) -> None:
        """Release the tasks that wait for a sum of the library."""
        # First of all, as the time that is reported.
        arrived = time.monotonic_ns()
        links = self._links
        self.table.note(self._mailbox, number, started, arrived)
        links.pending.later(links.delay(), partial(self._release, self.transfers[number].phase))

    def _prepare(self, transfer: Transfer) -> MPI.Prequest:
        """Return a persistent request, made once for all steps."""
        data = self._links.data
        prepare = data.Send_init if transfer.way is Way.SEND else data.Recv_init
        if not transfer.spans:
            # Empty messages say that memory which ranks of a host share is ready, or free again.
            return prepare((MPI.BOTTOM, 0, MPI.BYTE), transfer.peer, transfer.tag)
        if len(transfer.spans) == 1:  # which MPI moves without packing
            room = MPI.buffer.fromaddress(*transfer.spans[0])
            return prepare([room, MPI.BYTE], transfer.peer, transfer.tag)
        # Addresses from the bottom of memory: spans may belong to different arrays.
        kind = _datatype(transfer.spans)
        request = prepare((MPI.BOTTOM, 1, kind), transfer.peer, transfer.tag)
        kind.Free()  # when the request is
        return request


def refuse_too_many(transfers: Sequence[Transfer], most_tag: int) -> None:
    """Raise DistributedError for more messages than there are numbers, or higher tags than the library has."""
    tags = [transfer.tag for transfer in transfers]
    if len(transfers) > NUMBERS or max(tags, default=0) > most_tag:
        raise DistributedError(
            f"this network's messages are too many: {len(transfers)}, {NUMBERS} at most, numbered to "
            f"{max(tags, default=0)}, {most_tag} at most; larger chunks or fewer colors make fewer"
        )


def _datatype(spans: Sequence[Span]) -> MPI.Datatype:
    """Return an MPI datatype of all bytes of some spans, wherever they lie."""
    kind = MPI.BYTE.Create_hindexed([it.bytes for it in spans], [it.address for it in spans])
    return kind.Commit()
