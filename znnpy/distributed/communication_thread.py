"""The communication thread: the only one that calls MPI; sends, receives and releases tasks that wait.

It starts what tasks have posted, asks MPI again and again which messages are complete, and releases the
phase of each: tokens for the tasks that wait for it (`graph_messages.py`). Small messages between ranks, by channel,
go the same way (`small_messages.py`). Between two questions it sleeps an eighth of the time for which nothing has
happened: short waits are answered at once, and long ones cost next to no processor. As soon as there are tasks, whose
messages are many, compiled code (`Resting`) starts and completes these, sleeps and asks, until there is something for
Python.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from znnpy.distributed.background_threads import be_punctual, start, take_short_turns
from znnpy.distributed.errors import DistributedError
from znnpy.distributed.graph_messages import GraphMessages, Links, refuse_too_many
from znnpy.distributed.mpi import MPI
from znnpy.distributed.pending import Pending
from znnpy.distributed.small_messages import Listener, SmallMessages, Swaps
from znnpy.distributed.transfers import Carried, Delays, Parcel, Passage, Transfer
from znnpy.distributed.waits import Waits

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# The interpreter's default of 5 ms would be added to each message that ends while the main thread computes in
# Python; a shorter one makes more switches.
SWITCH_SECONDS = 5e-4
"""How long the main thread may keep the interpreter while this one wants it."""


def _nothing() -> None:
    """Do nothing: there is nothing to wait for."""


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
        self.failed: Callable[[BaseException], None] = lambda error: None
        # Communicators of their own: tags of messages, small values, sums and blocks need not be told apart,
        # and collectives of one do not wait behind another's.
        self._data, control, self._sums, parcels = (MPI.COMM_WORLD.Dup() for _ in range(4))
        self._pending = Pending()
        self._small = SmallMessages(control, self._pending)
        self._swaps = Swaps(parcels, self._pending)
        # MPI guarantees 32767 at least.
        self._most_tag = int(MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 32767)
        self._waits = Waits(control)
        self._delays: Delays | None = None
        # `deque.append` and `popleft` are atomic: others leave words without a lock.
        self._words: deque[Callable[[], None]] = deque()
        # By what their messages are in memory.
        self._graphs: dict[int, GraphMessages] = {}
        # As the communication thread has it; as others know.
        self._graph: GraphMessages | None = None
        self._attached: GraphMessages | None = None
        self._ending = False
        if delays:
            self.delay(delays)
        # A daemon: a thread that waits in MPI must not keep a failed process from ending.
        self._thread = threading.Thread(target=self._live, name="znnpy messages", daemon=True)

    @property
    def address(self) -> int:
        """Where tasks post: the word `mailbox` of `post`; compiles the reading code once there are tasks."""
        return self._waits.address

    @property
    def transfers(self) -> Sequence[Transfer]:
        """The messages of the attached graph, by number."""
        return self._graph.transfers if self._graph else ()

    @property
    def passages(self) -> Sequence[Passage]:
        """The times of the latest messages of tasks, as they arrived."""
        return self._waits.passages

    @property
    def carried(self) -> Carried:
        """Totals of all messages of tasks and blocks of volumes so far."""
        return self._waits.carried.plus(self._swaps.carried)

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
        attached = self._attached
        if attached and transfers is attached.transfers:
            return
        # Refused here, on the main thread: within the communication thread an error ends all ranks.
        refuse_too_many(transfers, self._most_tag)
        # Before the numbers change their meaning: what was posted by the graph before is complete then.
        if attached:
            attached.finish()
        graph = self._graphs.get(id(transfers))
        if graph is None:
            links = Links(self._data, self._sums, self._pending, self._waits, self._delays)
            graph = GraphMessages(transfers, control, release, finish, links)
            self._graphs[id(transfers)] = graph
        self._in_thread(partial(self._turn_to, graph))
        # Waits until the thread has turned: a post after this may be taken as the new graph's.
        self._attached = graph

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
            self._attached = None
        if self._thread.is_alive():
            self._in_thread(partial(self._forget, graph))

    def tell(self, rank: int, channel: int, message: bytes) -> None:
        """Send a small message; those of one channel to one rank arrive in their order."""
        self.call(partial(self.tell_at_once, rank, channel, message))

    def swap(self, out: Parcel | None, into: Parcel | None, then: Callable[[], None]) -> None:
        """Send memory to a rank and receive some from one, with all ranks at once; call `then` when both are done."""
        # Delays of tests come before the exchange, which all ranks join in any order of time.
        late = self._delays.of_message() if self._delays else 0
        swap = partial(self._swaps.swap, out, into, time.monotonic_ns(), then)
        self.call(partial(self._pending.later, late, swap))

    def listen(self, channel: int, listener: Listener) -> None:
        """Pass messages of a channel to a listener."""
        self._small.listeners[channel] = listener

    def call(self, word: Callable[[], None]) -> None:
        """Run a function in the communication thread."""
        self._words.append(word)
        self._waits.wake()

    def every(self, seconds: float, what: Callable[[], None]) -> None:
        """Run a function in the communication thread, again and again."""

        def again() -> None:
            what()
            self._pending.later(seconds, again)

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
        take_short_turns()
        try:
            self._look()
            # Requests and words last: `close` promises that what was told and posted has gone.
            while not self._ending or self._pending.requests or self._words or self._under_way:
                self._pending.complete(self._waits.rest(self._pending))
                self._look()
        # Whatever it is: without this thread no rank can go on, so the others must hear of it.
        except BaseException as error:
            self.failed(error)

    @property
    def _under_way(self) -> bool:
        return self._graph is not None and self._graph.table.under_way

    def _look(self) -> None:
        # Tests hold a rank up as a whole now and then.
        if self._delays and (held := self._delays.of_rank()):
            time.sleep(held)
        # Posts before words and timed ones: tasks wait for these.
        if self._graph:
            self._graph.look()
        while self._words:
            self._words.popleft()()
            self._pending.active = time.monotonic()
        # After the words, which may have added some that are due at once.
        self._pending.run_due()
        self._small.receive()

    def _turn_to(self, graph: GraphMessages | None) -> None:
        self._graph = graph
        self._waits.serve(graph.table if graph else None)

    def _forget(self, graph: GraphMessages) -> None:
        graph.give_back()
        if graph is self._graph:
            self._turn_to(None)

    def tell_at_once(self, rank: int, channel: int, message: bytes) -> None:
        """Send a small message from a function that runs in the communication thread."""
        self._small.tell(rank, channel, message)
