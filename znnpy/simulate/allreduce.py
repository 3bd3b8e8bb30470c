"""Simulated all-reduce: the tasks and messages by which ranks add up gradients, for each strategy.

Every rank runs a graph of its own: the recorded tasks, and for each exchange tasks that add received sums and tasks
that wait for sums (or weights) from others. A message takes a latency plus its bytes by the bandwidth, on a port
that carries one at a time each way (Hockney's alpha-beta model).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from znnpy.distributed.buckets import Pieces, in_turn, size_of
from znnpy.distributed.reduction_tree import Hop, Ranks
from znnpy.distributed.strategies import Strategy
from znnpy.graph import BARRIER, GraphBuilder, Named, TaskGraph
from znnpy.simulate.replay import Replay
from znnpy.simulate.run import Message, Place

COMES = 1 << 30
"""A phase that no simulated step releases: tasks of it wait for the token of a message."""
EXCHANGED = Named("exchange", "sum")
"""The description of the tasks that add or await sums over ranks."""


@dataclass(frozen=True)
class Links:
    """The cost of messages. latency: seconds; bandwidth: bytes a second, each way of every rank.

    adding: seconds a byte to add a received message.
    """

    # Of a 10 Gbit/s network: 20 microseconds, 1.25 GB/s; and about 3 GB/s for an addition. Defaults where
    # nothing was measured.
    latency: float = 20e-6
    bandwidth: float = 1.25e9
    adding: float = 3e-10

    def lasts(self, size: float) -> float:
        """Return the seconds for which a message of `size` bytes occupies a port."""
        return size / self.bandwidth


@dataclass(frozen=True, kw_only=True)
class Exchange(Pieces):
    """A gradient that is added up over ranks, in pieces: made by the tasks `after`, awaited by `before`.

    `moves`: those of `before` that update the weights.
    """

    after: tuple[int, ...]
    before: tuple[int, ...]
    moves: tuple[int, ...]
    step: int = 0


@dataclass(frozen=True)
class _Carried:
    """The exchanges that one message carries, taken together; `size`: bytes."""

    size: int
    after: tuple[int, ...]
    before: tuple[int, ...]
    moves: tuple[int, ...]
    step: int

    @classmethod
    def of(cls, bundle: Sequence[Exchange]) -> _Carried:
        return cls(
            size_of(bundle),
            _each_once(it.after for it in bundle),
            _each_once(it.before for it in bundle),
            _each_once(it.moves for it in bundle),
            bundle[0].step,
        )


def _each_once(found: Iterable[Iterable[int]]) -> tuple[int, ...]:
    # In order, without repetitions: `dict` keeps the first of each.
    return tuple(dict.fromkeys(task for own in found for task in own))


@dataclass(frozen=True)
class Exchanged:
    """The replay of every rank, and the messages between them over `ports` ports."""

    replays: list[Replay]
    messages: list[Message]
    ports: int


def exchanged(
    replay: Replay,
    layers: Sequence[Sequence[Exchange]],
    ranks: int,
    strategy: Strategy,
    links: Links,
    urgent: Collection[int] = (),
) -> Exchanged:
    """Return the same replay on every rank with the messages of `strategy`; no messages for one rank.

    `layers`: the exchanges of each layer, of every step. `urgent`: recorded tasks that come before others, as those
    of messages always do. The graph's policy must have no barriers: with them no message overlaps anything.
    """
    if ranks == 1:
        return Exchanged([replay], [], 0)
    # By the graph's own mark: its builder puts urgent tasks into the first band, as the engine does.
    first = np.isin(np.arange(replay.graph.size), list(urgent))
    replay = replace(replay, graph=replace(replay.graph, urgent=first))
    drawn = _Drawn(replay, layers, ranks, links)
    if strategy.weights_down:
        drawn.weights_move_at_first()
    # Step by step, so that tasks are declared in the order in which ranks declare them.
    for step in sorted({it.step for layer in layers for it in layer}):
        own = [[it for it in layer if it.step == step] for layer in layers]
        for color, bundle in in_turn(strategy, own, drawn.tree):
            drawn.add_up(_Carried.of(bundle), strategy, color)
    return drawn.done()


@dataclass(frozen=True)
class _Task:
    """A task added to the recorded ones; `after` and `before` count recorded tasks from 0, added ones from -1 down."""

    cost: float
    comes: bool
    after: tuple[int, ...]
    before: tuple[int, ...]
    step: int


@dataclass
class _Drawn:
    """Ranks under construction: the tasks that each has beside the recorded ones, and the messages."""

    replay: Replay
    layers: Sequence[Sequence[Exchange]]
    ranks: int
    links: Links
    tasks: list[list[_Task]] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    first: int = 0
    idle: frozenset[int] = frozenset()
    """Recorded tasks that cost nothing on all ranks but the first."""

    def __post_init__(self) -> None:
        self.tasks = [[] for _ in range(self.ranks)]
        self.first = recorded_tasks(self.replay.graph)
        # A tree with one microbatch for each rank: the hops over ranks are the same for any number of them.
        self.tree = Ranks.of(self.ranks, self.ranks)

    def weights_move_at_first(self) -> None:
        """Let only rank 0 update the weights."""
        self.idle = frozenset(task for it in self.layers for each in it for task in each.moves)

    def add_up(self, carried: _Carried, strategy: Strategy, color: int | None) -> None:
        """Add up what one message carries: up a tree and down the same, everywhere, or by a ring as a library does."""
        if not strategy.fixed:
            self._ring(carried)
            return
        if color is None and (rounds := self.tree.rounds()):
            self._everywhere(carried, rounds)
            return
        hops = self.tree.hops(color or 0)
        root, known = self._up(carried, hops)
        if strategy.weights_down:
            known = self._task(root, carried, after=carried.moves)
        self._down(carried, hops, root, known)

    def _ring(self, exchange: _Carried) -> None:
        """Add a ring all-reduce in lock step: it begins when the last rank arrives, and has the network to itself."""
        every, first, before = range(self.ranks), self.first, exchange.before
        ends = [place(first, self._task(r, exchange, after=exchange.after)) for r in every]
        gets = [place(first, self._task(r, exchange, comes=True, before=before)) for r in every]
        rounds, piece = self.ranks - 1, exchange.size / self.ranks
        # Reduce-scatter, then all-gather: P - 1 rounds each, of which only the first ones add.
        seconds = 2 * rounds * (self.links.latency + self.links.lasts(piece))
        seconds += rounds * piece * self.links.adding
        # The port of its own: a collective occupies all ranks at once (`simulated_ranks`).
        bus = self.ranks
        places = tuple(enumerate(ends)), tuple(enumerate(gets))
        self.messages.append(Message(*places, bus, bus, seconds, 0.0))

    def done(self) -> Exchanged:
        """Return the graphs and their messages; ranks with the same tasks share one graph."""
        # Made once for ranks that do the same: graphs are large.
        made: dict[tuple[tuple[_Task, ...], bool], Replay] = {}
        replays = []
        for rank, own in enumerate(self.tasks):
            key = tuple(own), rank > 0
            if key not in made:
                made[key] = _with(self.replay, own, self.idle if rank else frozenset())
            replays.append(made[key])
        return Exchanged(replays, self.messages, self.ranks + 1)

    def _everywhere(self, exchange: _Carried, rounds: Sequence[Sequence[Hop]]) -> None:
        """Add up by recursive doubling; each rank's last addition has the sum."""
        made = [self._task(rank, exchange, after=exchange.after) for rank in range(self.ranks)]
        for hops in rounds:
            before = list(made)
            for into, source in hops:
                made[into] = self._task(
                    into,
                    exchange,
                    cost=exchange.size * self.links.adding,
                    comes=True,
                    after=(before[into],),
                    before=exchange.before if hops is rounds[-1] else (),
                )
                self._send((source, before[source]), (into, made[into]), exchange.size)

    def _up(self, exchange: _Carried, hops: Sequence[Hop]) -> tuple[int, int]:
        """Add up along the tree; return the rank that has the sum and the task that made it, which all others await."""
        made = [self._task(rank, exchange, after=exchange.after) for rank in range(self.ranks)]
        for into, source in hops:
            # All others await the last addition, which has the sum.
            last = (into, source) == hops[-1]
            added = self._task(
                into,
                exchange,
                cost=exchange.size * self.links.adding,
                comes=True,
                after=(made[into],),
                before=exchange.before if last else (),
            )
            self._send((source, made[source]), (into, added), exchange.size)
            made[into] = added
        root = hops[-1].into
        return root, made[root]

    def _down(self, exchange: _Carried, hops: Sequence[Hop], root: int, known: int) -> None:
        """Send what the root has to all, down the same tree."""
        knows = {root: known}
        # The other way round: whoever added last is the first that knows.
        for source, to in reversed(hops):
            knows[to] = self._task(to, exchange, comes=True, before=exchange.before)
            self._send((source, knows[source]), (to, knows[to]), exchange.size)

    def _send(self, sender: Place, receiver: Place, size: float) -> None:
        links = self.links
        ends = [(rank, place(self.first, task)) for rank, task in (sender, receiver)]
        lasts = links.lasts(size)
        self.messages.append(
            Message((ends[0],), (ends[1],), sender[0], receiver[0], lasts, links.latency)
        )

    def _task(
        self,
        rank: int,
        exchange: _Carried,
        cost: float = 0.0,
        comes: bool = False,
        after: tuple[int, ...] = (),
        before: tuple[int, ...] = (),
    ) -> int:
        self.tasks[rank].append(_Task(cost, comes, after, before, exchange.step))
        # Numbers from -1 down, until the number of recorded tasks is known to `place`.
        return -len(self.tasks[rank])


def _with(replay: Replay, more: Sequence[_Task], idle: frozenset[int]) -> Replay:
    """Return the replay with more tasks behind the recorded ones, and without the work of the tasks in `idle`."""
    graph = replay.graph
    builder, first = GraphBuilder.of(graph), recorded_tasks(graph)
    for task in more:
        # Behind all recorded tasks, so their numbers stay.
        number = builder.task(
            0,
            [],
            EXCHANGED,
            cost=task.cost,
            phase=COMES if task.comes else -1,
            step=task.step,
            urgent=True,
        )
        for it in task.after:
            builder.precede(place(first, it), number)
        for it in task.before:
            builder.precede(number, it)
    made = builder.build(graph.policy)
    costs, (shares, traffic) = np.zeros((len(replay.costs), made.size)), np.zeros((2, made.size))
    costs[:, :first], shares[:first] = replay.costs[:, :first], replay.shares[:first]
    traffic[:first] = replay.traffic[:first]
    costs[:, first : first + len(more)] = [task.cost for task in more]
    costs[:, sorted(idle)] = 0.0
    return Replay(made, costs, shares, traffic)


def recorded_tasks(graph: TaskGraph) -> int:
    """Return how many tasks come before the barriers, which a builder makes anew."""
    return sum(task != BARRIER for task in graph.tasks)


def place(first: int, task: int) -> int:
    """Return the number in its graph of a recorded task, or, below 0, of one behind the `first` recorded ones."""
    return task if task >= 0 else first - 1 - task
