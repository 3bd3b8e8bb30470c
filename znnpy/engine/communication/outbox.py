"""The messages of one rank's graph: each is declared as a task that posts it and tasks that wait for it.

Who posts reads or writes what the message touches, and who waits does too: so that the order of messages,
additions and updates, within a step and from one to the next, follows from regions like any other. A
message's memory is touched by nobody between the two, and its post of the next step comes after whoever
waits in this one: no phase is ever released twice before its tasks have run.

Which of a rank's tasks come before all others: other ranks wait for them, which no path of its own graph shows.

What one message carries, and what makes a layer of what is added up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from znnpy_kernels.scheduling.barrier import wait_for_all
from znnpy_kernels.scheduling.mailbox import post

from znnpy.distributed.strategies import Strategy
from znnpy.distributed.transfers import Span, Transfer, Way
from znnpy.engine.layers.gradient_accumulation import Total
from znnpy.engine.memory.allocation import STEPS
from znnpy.engine.memory.parameters import PARAMETER_GRADIENTS, VALUES
from znnpy.engine.memory.regions import SMALL, Buffer, Name, Region, Use
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Identity, Part, Pass
from znnpy.network.types import Network

Bundle = tuple[Total, ...]
"""Pieces of totals that go together; all are numbers of the same size."""

_FOR_OTHERS = frozenset({Part.POST, Part.RANKS, Part.COPIED, Part.RECEIVED})
"""What posts a message, or brings on what the next one carries."""
_AWAITED = frozenset({Pass.WEIGHT, Pass.UPDATE})
"""What ranks at the other end of a tree wait for beside it."""
TICKETS = Use("messages that are under way", SMALL)
SEEN = (VALUES, PARAMETER_GRADIENTS)
"""What other ranks of the host can read."""
SECONDS = 2e-7  # of a task that posts or has waited


def by_layer(network: Network, totals: Iterable[Total]) -> list[list[Total]]:
    """Totals of the same layer together, in the order in which backward passes make them."""
    targets = {edge.name: edge.target for edge in network.edges}
    layers: dict[str, list[Total]] = {node.name: [] for node in reversed(network.nodes)}
    for total in totals:
        node = targets.get(total.owner, total.owner)
        layers[node if node in layers else node.rpartition(".")[0]].append(total)
    return [layer for layer in layers.values() if layer]


def hastened(what: Identity, strategy: Strategy, workers: int) -> bool:
    """Whether a task of an update comes before others on a rank of so many workers, in training and simulated.

    Where rank 0 hands out weights and a rank has one worker, gradients then leave while the backward pass goes on
    here, and weights while it does elsewhere. Several workers would all leave the critical path for that.
    """
    awaited = strategy.weights_down and workers == 1
    return what.part in _FOR_OTHERS or (awaited and what.serves in _AWAITED)


@dataclass
class Outbox:
    """Numbers messages as they are declared. Every rank declares those of all ranks, in the same order.

    So the n-th has the same tag at both its ends. `mailbox`: address of the ring of posted numbers, 0 for
    graphs that are never run. `shifts`: by how many bytes the same buffers of other ranks lie behind our own,
    for ranks whose memory can be read: messages to and from them carry nothing, and only say that it may be.
    """

    rank: int
    mailbox: int = 0
    shifts: Mapping[int, int] = field(default_factory=dict)
    transfers: list[Transfer] = field(default_factory=list)
    _tags: int = 0
    _rooms: int = 0

    def begin(self) -> None:
        """Another step, whose rooms are those of the one before."""
        self._rooms = 0

    def room(self) -> int:
        """Number of the next room that this step needs."""
        self._rooms += 1
        return self._rooms - 1

    def tag(self) -> int:
        """That of the next message between any two ranks; the one after it is that of its answer."""
        self._tags += 2
        return self._tags - 2

    def theirs(self, peer: int, bundle: Bundle) -> Bundle | None:
        """The same bundle in another rank's memory, where we can read it and it can read ours."""
        if peer not in self.shifts or any(it.buffer.name.use not in SEEN for it in bundle):
            return None
        return tuple(_shifted(total, self.shifts[peer]) for total in bundle)

    def offer(self, step: Step, peer: int, tag: int, bundle: Bundle) -> None:
        """Let another rank read a bundle, which stays as it is until that has answered."""
        self.send(step, peer, tag, bundle, empty=True)
        ticket = Buffer(Name(TICKETS, which=(len(self.transfers),))).region(0, 1)
        phase = self._post(step, Way.RECEIVE, peer, tag + 1, bundle, [], [ticket], empty=True)
        self._wait(step, Part.SENT, bundle, phase, [*touched(bundle), ticket], [])

    def answer(self, step: Step, peer: int, tag: int, bundle: Bundle) -> None:
        """Say that what another rank offered has been read, into this bundle."""
        self.send(step, peer, tag + 1, bundle, empty=True)

    def send(self, step: Step, peer: int, tag: int, bundle: Bundle, *, empty: bool = False) -> None:
        """A message to another rank; what it carries stays as it is until it has gone."""
        ticket = Buffer(Name(TICKETS, which=(len(self.transfers),))).region(0, 1)
        what = touched(bundle)
        phase = self._post(step, Way.SEND, peer, tag, bundle, what, [ticket], empty=empty)
        self._wait(step, Part.SENT, bundle, phase, [*what, ticket], [])

    def receive(
        self, step: Step, peer: int, tag: int, bundle: Bundle, *, empty: bool = False
    ) -> int:
        """The same from another rank: the phase for which its first readers wait."""
        return self._post(step, Way.RECEIVE, peer, tag, bundle, [], touched(bundle), empty=empty)

    def take(self, step: Step, peer: int, tag: int, bundle: Bundle) -> None:
        """The same for memory that others read, who need not know of messages."""
        self._received(step, bundle, self.receive(step, peer, tag, bundle))

    def sum(self, step: Step, bundle: Bundle) -> int:
        """Have the library add up a bundle that lies in one place: the phase for its first readers."""
        return self._post(step, Way.SUM, -1, self.tag(), bundle, what := touched(bundle), what)

    def sum_in_place(self, step: Step, bundle: Bundle) -> None:
        """The same for memory that others read."""
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


def _shifted(total: Total, shift: int) -> Total:
    buffer = total.buffer
    return replace(total, buffer=Buffer(buffer.name, buffer.address + shift, buffer.floats))


def touched(bundle: Bundle) -> list[Region]:
    """What a bundle's messages read or write."""
    return [total.region() for total in bundle]
