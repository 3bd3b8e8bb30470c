"""The communication thread: the only one that calls MPI; sends, receives and releases tasks that wait.

It starts what tasks have posted, asks MPI again and again which messages are complete, and releases the
phase of each: tokens for the tasks that wait for it. Small messages between ranks, by channel, go the same
way. Between two questions it sleeps an eighth of the time for which nothing has happened: short waits are
answered at once, and long ones cost next to no processor. As soon as there are tasks, whose messages are many,
compiled code (`Resting`) starts and completes these, sleeps and asks, until there is something for Python.
"""

from __future__ import annotations

import heapq
import itertools
import math
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from znnpy.distributed.background_threads import be_punctual, start
from znnpy.distributed.errors import DistributedError
from znnpy.distributed.mpi import MPI
from znnpy.distributed.transfers import (
    NUMBERS,
    Carried,
    Delays,
    Parcel,
    Passage,
    Span,
    Transfer,
    Way,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from znnpy.distributed.backoff import Resting
    from znnpy.distributed.mailbox import Mailbox
    from znnpy.distributed.message_table import Log, MessageTable

# Seconds: waits lengthen by an eighth, and idle ranks cost little of a core (docs/design/distributed.md).
SHORTEST_SLEEP, LONGEST_SLEEP = 50e-6, 2e-3
PATIENCE = 8
"""A sleep takes 1 / PATIENCE of the time for which nothing has happened."""
# The interpreter's default of 5 ms would be added to each message that ends while the main thread computes in
# Python; a shorter one makes more switches.
SWITCH_SECONDS = 5e-4
"""How long the main thread may keep the interpreter while this one wants it."""
EAGER = 3e-4
"""Seconds without anything new for which it asks without sleeping while workers have nothing to do."""

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


def _nothing() -> None:
    """Do nothing: there is nothing to wait for."""


@dataclass
class _Graph:
    """The messages of a graph and their progress; sums go through their numbers again and again."""

    transfers: Sequence[Transfer] = ()
    release: Callable[[int], None] = lambda phase: None
    finish: Callable[[], None] = _nothing
    table: MessageTable | None = None
    prepared: dict[int, MPI.Prequest] = field(default_factory=dict)
    sums_posted: set[int] = field(default_factory=set)  # that have not begun
    sum_next: int = 0

    def __post_init__(self) -> None:
        self.sums_in_order = [n for n, it in enumerate(self.transfers) if it.way is Way.SUM]


# All state but `_words` and the mailbox belongs to that thread: so nothing here has a lock.
class Messenger:
    """One rank's communication thread. Other threads only leave requests for it."""

    def __init__(self, delays: Delays | None = None) -> None:
        # Other threads call MPI too, when it begins and ends: a library that allows only one is refused.
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise DistributedError(
                "this MPI library lets only one thread of a process use it; znnpy needs one built with "
                "MPI_THREAD_MULTIPLE, such as that of `pip install mpich`"
            )
        self.rank, self.size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
        self._swapped = Carried(0, 0, 0.0)  # blocks of volumes
        self.failed: Callable[[BaseException], None] = lambda error: None
        # Communicators of their own: tags of messages, small values, sums and blocks need not be told apart,
        # and collectives of one do not wait behind another's.
        self._data, self._control, self._sums, self._parcels = (
            MPI.COMM_WORLD.Dup() for _ in range(4)
        )
        # MPI guarantees 32767 at least.
        self._most_tag = int(MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 32767)
        self._mailbox: Mailbox | None = None
        self._resting: Resting | None = None
        self._log: Log | None = None
        self._delays: Delays | None = None
        # `deque.append` and `popleft` are atomic: others leave words without a lock.
        self._words: deque[Callable[[], None]] = deque()
        self._timed: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._requests: list[MPI.Request] = []
        self._complete: list[Callable[[], None]] = []  # what to do when each request is
        self._graphs: dict[int, _Graph] = {}  # by what their messages are in memory
        # As the communication thread has it; as others know.
        self._graph = self._attached = _Graph()
        self._listeners: dict[int, Listener] = {}
        self._arriving: dict[int, deque[_Arrival]] = defaultdict(deque)
        self._status = MPI.Status()
        self._active = 0.0  # when something has happened
        self._ending = False
        if delays:
            self.delay(delays)
        # A daemon: a thread that waits in MPI must not keep a failed process from ending.
        self._thread = threading.Thread(target=self._live, name="znnpy messages", daemon=True)

    @property
    def address(self) -> int:
        """Where tasks post: the word `mailbox` of `post`; compiles the reading code once there are tasks."""
        # Only where there are tasks: loading compiled code would delay the moment at which ranks meet.
        if self._mailbox is None:
            from znnpy.distributed.backoff import Pace, Resting
            from znnpy.distributed.mailbox import Mailbox
            from znnpy.distributed.message_table import Log

            self._log = Log()
            self._mailbox = Mailbox()
            pace = Pace(SHORTEST_SLEEP, LONGEST_SLEEP, PATIENCE, EAGER)
            self._resting = Resting(self._mailbox, self._control, pace)
        return self._mailbox.address

    @property
    def transfers(self) -> Sequence[Transfer]:
        """The messages of the attached graph, by number."""
        return self._graph.transfers

    @property
    def passages(self) -> Sequence[Passage]:
        """The times of the latest messages of tasks, as they arrived."""
        return self._log.passages if self._log else ()

    @property
    def carried(self) -> Carried:
        """Totals of all messages of tasks and blocks of volumes so far."""
        found, swapped = self._log.carried if self._log else Carried(0, 0, 0.0), self._swapped
        return Carried(
            found.messages + swapped.messages,
            found.bytes + swapped.bytes,
            found.seconds + swapped.seconds,
        )

    def start(self) -> None:
        """Start the thread, once all first listeners are known; NoThreadError where the system allows no thread."""
        # Before the first message: the thread that wants the interpreter waits one interval at most.
        sys.setswitchinterval(min(SWITCH_SECONDS, sys.getswitchinterval()))
        start(self._thread)

    def attach(
        self,
        transfers: Sequence[Transfer],
        release: Callable[[int], None],
        finish: Callable[[], None] = _nothing,
        control: NDArray[np.int64] | None = None,
    ) -> None:
        """Serve a graph's messages, by number, and the release of its executor, until `detach`.

        `control`: the executor's control block, by which compiled code releases phases, in place of `release`.

        Several graphs take turns: each attaches its messages before it begins a step, and `finish` waits for the
        steps that it has begun, before another's take their numbers and tags. Attaching what is attached does nothing.
        """
        # By identity: each model has a list of its own, whatever is in it.
        if transfers is self._attached.transfers:
            return
        # Refused here, on the main thread: within the communication thread an error ends all ranks.
        tags = [transfer.tag for transfer in transfers]
        if len(transfers) > NUMBERS or max(tags, default=0) > self._most_tag:
            raise DistributedError(
                f"this network's messages are too many: {len(transfers)}, {NUMBERS} at most, numbered to "
                f"{max(tags, default=0)}, {self._most_tag} at most; larger chunks or fewer colors make fewer"
            )
        # Before the numbers change their meaning: what was posted by the graph before is complete then.
        self._attached.finish()
        graph = self._graphs.get(id(transfers))
        if graph is None:
            graph = self._graphs[id(transfers)] = _Graph(transfers, release, finish)
            graph.table = self._table(transfers, control)
        self._in_thread(partial(self._turn_to, graph))
        # Waits until the thread has turned: a post after this may be taken as the new graph's.
        self._attached = graph

    def _table(
        self, transfers: Sequence[Transfer], control: NDArray[np.int64] | None
    ) -> MessageTable:
        from znnpy.distributed.message_table import MessageTable

        assert self.address
        assert self._log
        # What tests delay goes through Python, which delays it.
        return MessageTable(transfers, None if self._delays else control, self._log)

    def delay(self, delays: Delays) -> None:
        """Delay messages at random, those of graphs that are attached later: for tests."""
        self._delays = replace(delays, rank=self.rank)

    def detach(self, transfers: Sequence[Transfer]) -> None:
        """Forget a graph whose steps are complete, if it was attached."""
        # By identity, as its entry holds the list: no other list can have that address meanwhile.
        graph = self._graphs.pop(id(transfers), None)
        if graph is None:
            return
        if graph is self._attached:
            self._attached = _Graph()
        if self._thread.is_alive():
            self._in_thread(partial(self._forget, graph))

    def tell(self, rank: int, channel: int, message: bytes) -> None:
        """Send a small message; those of one channel to one rank arrive in their order."""
        self.call(partial(self.tell_at_once, rank, channel, message))

    def swap(self, out: Parcel | None, into: Parcel | None, then: Callable[[], None]) -> None:
        """Send memory to a rank and receive some from one, with all ranks at once; call `then` when both are done."""
        # Delays of tests come before the exchange, which all ranks join in any order of time.
        late = self._delays.of_message() if self._delays else 0
        swap = partial(self._swap, out, into, time.monotonic_ns(), then)
        self.call(partial(self._later, late, swap))

    def listen(self, channel: int, listener: Listener) -> None:
        """Pass messages of a channel to a listener."""
        self._listeners[channel] = listener

    def call(self, word: Callable[[], None]) -> None:
        """Run a function in the communication thread."""
        self._words.append(word)
        if self._mailbox:
            # Without a mailbox the thread sleeps for LONGEST_SLEEP at most, and sees the word then.
            self._mailbox.wake()

    def every(self, seconds: float, what: Callable[[], None]) -> None:
        """Run a function in the communication thread, again and again."""

        def again() -> None:
            what()
            self._later(seconds, again)

        self.call(again)

    def close(self) -> None:
        """End the thread when all that was told and posted is complete."""
        if self._thread.is_alive():
            self.call(self._end)
            self._thread.join()

    def _in_thread(self, word: Callable[[], None]) -> None:
        done = threading.Event()

        def then() -> None:
            word()
            done.set()

        self.call(then)
        # The thread may have failed, and would never set it.
        while not done.wait(0.1):
            if not self._thread.is_alive():
                raise DistributedError("the communication thread has ended")

    def _end(self) -> None:
        # Only marks: what is under way is completed before `_live` returns.
        self._ending = True

    def _live(self) -> None:
        be_punctual()
        try:
            self._look()
            # Requests and words last: `close` promises that what was told and posted has gone.
            while not self._ending or self._requests or self._words or self._under_way:
                self._complete_all(self._rest())
                self._look()
        # Whatever it is: without this thread no rank can go on, so the others must hear of it.
        except BaseException as error:
            self.failed(error)

    @property
    def _under_way(self) -> bool:
        return self._graph.table is not None and self._graph.table.under_way

    def _look(self) -> None:
        # Tests hold a rank up as a whole now and then.
        if self._delays and (held := self._delays.of_rank()):
            time.sleep(held)
        # Posts before words and timed ones: tasks wait for these.
        if table := self._graph.table:
            graph = self._graph
            for number in table.left():
                self._later(self._delay(), partial(self._begin, number))
            for number in table.done():
                self._later(self._delay(), partial(graph.release, graph.transfers[number].phase))
        while self._words:
            self._words.popleft()()
            self._active = time.monotonic()
        # After the words, which may have added some that are due at once.
        while self._timed and self._timed[0][0] <= time.monotonic():
            heapq.heappop(self._timed)[2]()
        self._receive_told()

    def _rest(self) -> Sequence[int]:
        """Sleep until something has happened; return the places of requests that are complete."""
        until = self._timed[0][0] if self._timed else math.inf
        if self._resting:
            found = self._resting.rest(self._requests, self._active, until)
            self._active = self._resting.active
            return found
        # In Python only until there are tasks: then messages are few, and compiled code need not be loaded.
        if complete := MPI.Request.Testsome(self._requests) if self._requests else None:
            return complete
        now = time.monotonic()
        # An eighth of what was waited for: a message is late by an eighth of its own time, and long waits cost
        # little.
        wanted = min(max(SHORTEST_SLEEP, (now - self._active) / PATIENCE), LONGEST_SLEEP)
        time.sleep(max(0.0, min(wanted, until - now)))
        return ()

    # At once where nothing delays it: a detour through the heap would change the order.
    def _later(self, seconds: float, what: Callable[[], None]) -> None:
        if seconds <= 0:
            what()
        else:
            heapq.heappush(self._timed, (time.monotonic() + seconds, next(self._order), what))

    def _complete_all(self, found: Sequence[int]) -> None:
        """Do what follows from requests that are complete."""
        if not found:
            return
        self._active = time.monotonic()
        # All taken out before any is run: what follows from one may start new requests, and change these lists.
        complete, gone = [self._complete[index] for index in found], set(found)
        self._requests = [it for index, it in enumerate(self._requests) if index not in gone]
        self._complete = [it for index, it in enumerate(self._complete) if index not in gone]
        for what in complete:
            what()

    def _wait_for(self, request: MPI.Request, then: Callable[[], None]) -> None:
        self._requests.append(request)
        self._complete.append(then)
        self._active = time.monotonic()

    def _turn_to(self, graph: _Graph) -> None:
        self._graph = graph
        if self._resting:
            self._resting.serve(graph.table)

    def _forget(self, graph: _Graph) -> None:
        for number, request in graph.prepared.items():
            assert graph.table
            graph.table.given_back(number, request)
            request.Free()
        if graph is self._graph:
            self._turn_to(_Graph())

    def _begin(self, number: int) -> None:
        graph = self._graph
        if graph.transfers[number].way is Way.SUM:
            graph.sums_posted.add(number)
            self._begin_sums(graph)
            return
        # Made at the first step, then started again and again: a persistent request costs MPI less than a new
        # one, and compiled code can start it.
        table = graph.table
        assert table
        if number not in graph.prepared:
            request = graph.prepared[number] = self._prepare(graph.transfers[number])
            table.prepared(number, request, again=self._delays is None)
        table.begin(number)
        self._active = time.monotonic()

    def _begin_sums(self, graph: _Graph) -> None:
        """Start sums in the order of their numbers: all ranks must start them in one order."""
        while graph.sums_posted:
            # MPI matches collectives by their order alone; a rank that started them as they are posted would
            # add up different layers.
            number = graph.sums_in_order[graph.sum_next]
            if number not in graph.sums_posted:
                return
            graph.sums_posted.remove(number)
            # Round and round: each step posts each of them once.
            graph.sum_next = (graph.sum_next + 1) % len(graph.sums_in_order)
            transfer = graph.transfers[number]
            room = MPI.buffer.fromaddress(*transfer.spans[0])
            kind = MPI.FLOAT if transfer.number == 4 else MPI.DOUBLE
            # In place, without a copy of the gradients.
            request = self._sums.Iallreduce(
                MPI.IN_PLACE, [room, transfer.bytes // transfer.number, kind]
            )
            self._wait_for(request, partial(self._added, graph, number, time.monotonic_ns()))

    def _prepare(self, transfer: Transfer) -> MPI.Prequest:
        """Return a persistent request, made once for all steps."""
        prepare = self._data.Send_init if transfer.way is Way.SEND else self._data.Recv_init
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

    def _added(self, graph: _Graph, number: int, started: int) -> None:
        """Release the tasks that wait for a sum of the library."""
        # First of all, as the time that is reported.
        arrived = time.monotonic_ns()
        assert graph.table
        assert self._mailbox
        graph.table.note(self._mailbox.address, number, started, arrived)
        self._later(self._delay(), partial(graph.release, graph.transfers[number].phase))

    def _delay(self) -> float:
        """Return the seconds by which to delay the next message: in tests alone more than 0."""
        return self._delays.of_message() if self._delays else 0.0

    def tell_at_once(self, rank: int, channel: int, message: bytes) -> None:
        """Send a small message from a function that runs in the communication thread."""
        # Straight to the listener: MPI need not send to oneself.
        if rank == self.rank:
            self._listeners[channel](rank, message)
            return
        request = self._control.Isend([message, MPI.BYTE], rank, channel)
        # Most have gone at once, and need no look that finds it.
        if request.Test():
            self._active = time.monotonic()
            return
        # The message must not be freed before MPI has sent it, so the callback holds it.
        self._wait_for(request, partial(_delivered, message))

    def _swap(
        self, out: Parcel | None, into: Parcel | None, began: int, then: Callable[[], None]
    ) -> None:
        # All ranks take part, most of them with nothing: a collective needs no agreement on who meets whom.
        request = self._parcels.Ialltoallv(self._side(out), self._side(into))
        sizes = [parcel.memory.nbytes for parcel in (out, into) if parcel]

        def passed() -> None:
            for size in sizes:
                self._swapped = self._swapped.with_one(size, time.monotonic_ns() - began)
            then()

        self._wait_for(request, passed)

    def _side(self, parcel: Parcel | None) -> list[object]:
        """Return one's own part in an exchange among all ranks: one parcel at most."""
        counts = [0] * self.size
        if parcel:
            counts[parcel.rank] = parcel.memory.nbytes
        return [parcel.memory if parcel else bytearray(), counts, [0] * self.size, MPI.BYTE]

    def _receive_told(self) -> None:
        status = self._status
        # A matched probe: the message is taken from the queue with it, so no other receive can get it.
        while message := self._control.Improbe(status=status):
            source = status.source
            arrival = _Arrival(status.tag, bytearray(status.Get_count(MPI.BYTE)))
            # In the order of probes, which is that of sending; receives may be complete in another order.
            self._arriving[source].append(arrival)
            if len(arrival.room) <= AT_ONCE:
                message.Recv([arrival.room, MPI.BYTE])
                self._told(source, arrival)
                continue
            request = message.Irecv([arrival.room, MPI.BYTE])
            self._wait_for(request, partial(self._told, source, arrival))

    def _told(self, source: int, arrival: _Arrival) -> None:
        """Pass on what has come from a rank, in the order in which it was sent."""
        arrival.complete = True
        waiting = self._arriving[source]
        # A message that is complete waits for earlier ones of its rank.
        while waiting and waiting[0].complete:
            first = waiting.popleft()
            self._listeners[first.channel](source, bytes(first.room))


def _delivered(message: bytes) -> None:
    """Do nothing more: the message was kept until now."""


def _datatype(spans: Sequence[Span]) -> MPI.Datatype:
    """Return an MPI datatype of all bytes of some spans, wherever they lie."""
    kind = MPI.BYTE.Create_hindexed([it.bytes for it in spans], [it.address for it in spans])
    return kind.Commit()
