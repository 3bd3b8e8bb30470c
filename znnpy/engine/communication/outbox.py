"""`Outbox`: declares each message between ranks as a task that posts it and tasks that wait for it.

The posting task reads or writes what the message touches, and so does the waiting one: the order of messages,
additions and updates, within a step and between steps, follows from regions like any other. Nobody touches a
message's memory between the two, and its post of the next step comes after the task that waits in this one: so no
phase is released twice before its tasks have run.

`by_layer` groups what is summed, `hastened` says which tasks come first because other ranks wait for them, `marked`
which of them run in the thread that releases them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from znnpy_kernels.scheduling.barrier import wait_for_all
from znnpy_kernels.scheduling.mailbox import post

from znnpy.distributed.strategies import Strategy
from znnpy.distributed.transfers import Span, Transfer, Way
from znnpy.engine.layers.gradient_accumulation import Total
from znnpy.engine.memory.allocation import STEPS
from znnpy.engine.memory.parameters import PARAMETER_GRADIENTS, VALUES
from znnpy.engine.memory.regions import Buffer, Name, Region
from znnpy.engine.memory.staging import Move
from znnpy.engine.tasks.declaration import Declared
from znnpy.engine.tasks.odd_step import TICKETS
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network.types import Network

Bundle = tuple[Total, ...]
"""Pieces of sums that one message carries; all of the same dtype size."""

# Urgent for any strategy and number of workers (docs/design/distributed.md).
_FOR_OTHERS = frozenset({Part.POST, Part.RANKS, Part.COPIED, Part.RECEIVED})
"""Parts that post a message, or compute what the next one carries."""
_LIGHT = _FOR_OTHERS | {Part.SENT}
"""Parts that whoever releases them may run: their kernels write or add what lies in a row."""
_AWAITED = frozenset({Pass.WEIGHT, Pass.UPDATE})
"""Passes whose results ranks at the other end of the tree wait for."""
SEEN = (VALUES, PARAMETER_GRADIENTS)
"""Uses of buffers that other ranks of the host can read in place."""
# Only orders tasks.
SECONDS = 2e-7  # estimated cost of a task that posts a message or has waited for one: a few writes to memory


def by_layer(network: Network, totals: Iterable[Total]) -> list[list[Total]]:
    """Return sums grouped by layer, in the order in which the backward pass makes them."""
    targets = {edge.name: edge.target for edge in network.edges}
    layers: dict[str, list[Total]] = {node.name: [] for node in reversed(network.nodes)}
    for total in totals:
        node = targets.get(total.owner, total.owner)
        layers[node if node in layers else node.rpartition(".")[0]].append(total)
    return [layer for layer in layers.values() if layer]


def hastened(what: Identity, strategy: Strategy, workers: int) -> bool:
    """Return whether a task of an update comes first on a rank with so many workers, in training and simulation.

    If rank 0 hands out weights and a rank has one worker, gradients then leave while its backward pass continues, and
    weights while that of others does. Several workers would all leave the critical path for that.
    """
    # Measured and simulated in docs/design/distributed.md, "What others wait for is urgent".
    awaited = strategy.weights_down and workers == 1
    return what.part in _FOR_OTHERS or (awaited and what.serves in _AWAITED)


def marked(tasks: Iterable[Declared], strategy: Strategy, workers: int) -> list[Declared]:
    """Return the tasks of an update, marked as urgent where others wait, as light where they are of messages."""
    return [
        replace(it, urgent=hastened(it.what, strategy, workers), light=it.what.part in _LIGHT)
        for it in tasks
    ]


@dataclass
class Outbox:
    """Numbers messages as they are declared; every rank declares those of all ranks, in the same order.

    So a message has the same tag at both its ends. `mailbox`: address of the ring of posted numbers, 0 for graphs
    that are never run. `shifts`: by how many bytes the same buffers of another rank lie behind our own, for ranks
    whose memory can be read in place: messages with these carry no data and only say that it may be read. `elsewhere`:
    where an arena tells buffers apart, returns the address there (rank, ours), in place of shifts.
    """

    rank: int
    mailbox: int = 0
    shifts: Mapping[int, int] = field(default_factory=dict)
    elsewhere: Callable[[int, int], int] | None = None
    transfers: list[Transfer] = field(default_factory=list)
    _tags: int = 0
    _rooms: int = 0

    def begin(self) -> None:
        """Begin another step, which reuses the rooms of the one before."""
        self._rooms = 0

    def number_odd(self, move: Move) -> None:
        """Number the messages of the odd step behind those of the even one, as its tasks are (`odd_step`)."""
        count, tags = len(self.transfers), self._tags
        self.transfers += [
            it._replace(
                tag=it.tag + tags,
                spans=tuple(span._replace(address=move.address(span.address)) for span in it.spans),
                phase=it.phase + count,
            )
            for it in self.transfers
        ]

    def room(self) -> int:
        """Return the number of the next room (a receive buffer) of this step."""
        self._rooms += 1
        return self._rooms - 1

    def tag(self) -> int:
        """Return the tag of the next message between any two ranks; the tag after it is that of its answer."""
        # Two a message: its own and that of its answer, so that offers and answers are never mixed
        # up.
        self._tags += 2
        return self._tags - 2

    def theirs(self, peer: int, bundle: Bundle) -> Bundle | None:
        """Return the same bundle in another rank's memory; None if that cannot be read in place."""
        # Windows cover parameters and their gradients alone; statistics and losses go as messages.
        if peer not in self.shifts or any(it.buffer.name.use not in SEEN for it in bundle):
            return None
        return tuple(self._shifted(peer, total) for total in bundle)

    def _shifted(self, peer: int, total: Total) -> Total:
        own = total.buffer
        there = self.elsewhere
        address = there(peer, own.address) if there else own.address + self.shifts[peer]
        return replace(total, buffer=Buffer(own.name, address, own.floats))

    def offer(self, step: Step, peer: int, tag: int, bundle: Bundle) -> None:
        """Declare that another rank may read a bundle, which stays unchanged until that rank has answered."""
        # Empty messages have the same tags and order as full ones: only their spans are missing.
        self.send(step, peer, tag, bundle, empty=True)
        # A buffer without memory: it orders the waiting task after the post, by regions like
        # everything else.
        ticket = Buffer(Name(TICKETS, which=(len(self.transfers),))).region(0, 1)
        phase = self._post(step, Way.RECEIVE, peer, tag + 1, bundle, [], [ticket], empty=True)
        self._wait(step, Part.SENT, bundle, phase, [*touched(bundle), ticket], [])

    def answer(self, step: Step, peer: int, tag: int, bundle: Bundle) -> None:
        """Declare the answer that a bundle which another rank offered has been read."""
        self.send(step, peer, tag + 1, bundle, empty=True)

    def send(self, step: Step, peer: int, tag: int, bundle: Bundle, *, empty: bool = False) -> None:
        """Declare a message to another rank; what it carries stays unchanged until it has gone."""
        ticket = Buffer(Name(TICKETS, which=(len(self.transfers),))).region(0, 1)
        what = touched(bundle)
        phase = self._post(step, Way.SEND, peer, tag, bundle, what, [ticket], empty=empty)
        self._wait(step, Part.SENT, bundle, phase, [*what, ticket], [])

    def receive(
        self, step: Step, peer: int, tag: int, bundle: Bundle, *, empty: bool = False
    ) -> int:
        """Declare a message from another rank; return the phase for which its first readers wait."""
        return self._post(step, Way.RECEIVE, peer, tag, bundle, [], touched(bundle), empty=empty)

    def take(self, step: Step, peer: int, tag: int, bundle: Bundle) -> None:
        """Declare a message from another rank into memory whose readers need not know of messages."""
        self._received(step, bundle, self.receive(step, peer, tag, bundle))

    def sum(self, step: Step, bundle: Bundle) -> int:
        """Declare a sum over ranks by the library, of a contiguous bundle; return the phase for its first readers."""
        return self._post(step, Way.SUM, -1, self.tag(), bundle, what := touched(bundle), what)

    def sum_in_place(self, step: Step, bundle: Bundle) -> None:
        """Declare a sum over ranks by the library, in memory whose readers need not know of messages."""
        self._received(step, bundle, self.sum(step, bundle))

    def _received(self, step: Step, bundle: Bundle, phase: int) -> None:
        what = touched(bundle)
        self._wait(step, Part.RECEIVED, bundle, phase, what, what)

    def _post(
        self,
        step: Step,
        way: Way,
        peer: int,
        tag: int,
        bundle: Bundle,
        reads: Iterable[Region],
        writes: Iterable[Region],
        *,
        empty: bool = False,
    ) -> int:
        number = len(self.transfers)
        spans = () if empty else tuple(Span(total.at(0), total.size) for total in bundle)
        label = "/".join(dict.fromkeys(total.owner for total in bundle))
        # The first phases release the steps themselves (`dependencies.connect`).
        phase = STEPS + number
        self.transfers.append(Transfer(way, peer, tag, spans, phase, label, bundle[0].bytes))
        step.add(
            post,
            {"mailbox": self.mailbox, "number": number},
            what=Identity(bundle[0].owner, Pass.ORDER, Part.POST),
            cost=SECONDS,
            reads=reads,
            writes=writes,
        )
        return phase

    def _wait(
        self,
        step: Step,
        part: Part,
        bundle: Bundle,
        phase: int,
        reads: Iterable[Region],
        writes: Iterable[Region],
    ) -> None:
        step.add(
            wait_for_all,
            {},
            what=Identity(bundle[0].owner, Pass.ORDER, part),
            cost=SECONDS,
            reads=reads,
            writes=writes,
            phase=phase,
        )


def touched(bundle: Bundle) -> list[Region]:
    """Return the regions that messages with a bundle read or write."""
    return [total.region() for total in bundle]
