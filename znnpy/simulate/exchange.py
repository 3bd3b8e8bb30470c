"""How ranks add up gradients, as tasks and messages of a simulated run: one pattern a strategy.

Every rank runs a graph of its own: the recorded tasks, and for each exchange those that add what has
come, and those that wait for sums (or weights) from others. Times of messages: a latency, and bytes by
bandwidth on a port that carries one at a time each way (Hockney's alpha-beta model).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from znnpy.distributed.ranks import Hop, Ranks
from znnpy.distributed.strategies import STRATEGIES, StrategyName
from znnpy.graph import BARRIER, GraphBuilder, Named, TaskGraph
from znnpy.simulate.replay import Replay
from znnpy.simulate.run import Message, Place

COMES = 1 << 30
"""A phase that nothing of a simulated step releases: the token of a message."""
EXCHANGED = Named("exchange", "sum", urgent=True)


@dataclass(frozen=True)
class Links:
    """What messages cost. latency: seconds; bandwidth: bytes a second, each way of every rank.

    adding: seconds a byte for adding what has come. chunk, bucket: bytes of the largest message of
    `multicolor`, and of that of `tree`, which is where `allreduce` fuses no more.
    """

    latency: float = 20e-6
    bandwidth: float = 1.25e9
    adding: float = 3e-10
    chunk: int = STRATEGIES["multicolor"].chunk
    bucket: int = STRATEGIES["allreduce"].chunk

    def lasts(self, size: float) -> float:
        """Seconds that a message of so many bytes is on a port."""
        return size / self.bandwidth


@dataclass(frozen=True)
class Exchange:
    """What is added up over ranks at once: so many bytes, made by `after`, awaited by `before`.

    `moves`: those of `before` that move the weights.
    """

    size: int
    after: tuple[int, ...]
    before: tuple[int, ...]
    moves: tuple[int, ...]
    step: int = 0


@dataclass(frozen=True)
class Exchanged:
    """Every rank's replay, and the messages between them, through so many ports."""

    replays: list[Replay]
    messages: list[Message]
    ports: int


def exchanged(
    replay: Replay,
    exchanges: Sequence[Exchange],
    ranks: int,
    strategy: StrategyName,
    links: Links,
    colors: int = 2,
) -> Exchanged:
    """The same replay on every rank, with what `strategy` sends; nothing for one rank.

    The graph must be of a policy without barriers: with them no message overlaps anything.
    """
    if ranks == 1:
        return Exchanged([replay], [], 0)
    drawn = _Drawn(replay, exchanges, ranks, links)
    if strategy == "tree":
        drawn.weights_move_at_first()
        for exchange in exchanges:
            drawn.tree(exchange)
    elif strategy == "multicolor":
        for exchange in exchanges:
            drawn.colors(exchange, colors)
    else:
        least = links.bucket if strategy == "allreduce" else float("inf")
        for exchange in fused(exchanges, least):
            drawn.ring(exchange)
    return drawn.done()


def fused(exchanges: Sequence[Exchange], least: float) -> Iterator[Exchange]:
    """Exchanges of one step that follow each other together, until they have `least` bytes."""
    for step in sorted({exchange.step for exchange in exchanges}):
        waiting: list[Exchange] = []
        for exchange in (it for it in exchanges if it.step == step):
            waiting.append(exchange)
            if sum(it.size for it in waiting) >= least:
                yield _as_one(waiting)
                waiting = []
        if waiting:
            yield _as_one(waiting)


def _as_one(exchanges: Sequence[Exchange]) -> Exchange:
    return replace(
        exchanges[0],
        size=sum(it.size for it in exchanges),
        after=tuple(task for it in exchanges for task in it.after),
        before=tuple(task for it in exchanges for task in it.before),
        moves=tuple(task for it in exchanges for task in it.moves),
    )


@dataclass(frozen=True)
class _Task:
    """A task beside the recorded ones; `after` and `before` count recorded tasks from 0, others from -1 down."""

    cost: float
    comes: bool
    after: tuple[int, ...]
    before: tuple[int, ...]
    step: int


@dataclass
class _Drawn:
    """Ranks in the making: the tasks that each has beside the recorded ones, and messages."""

    replay: Replay
    exchanges: Sequence[Exchange]
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

    def weights_move_at_first(self) -> None:
        """Only rank 0 moves the weights."""
        self.idle = frozenset(task for it in self.exchanges for task in it.moves)

    def tree(self, exchange: Exchange) -> None:
        """Gradients up one tree, weights down the same."""
        met = Ranks.of(self.ranks, self.ranks).hops()
        chunks = max(1, round(exchange.size / self.links.bucket))
        for _ in range(chunks):
            self._up(exchange, met, exchange.size / chunks, exchange.before)
        moved = self._task(0, exchange, after=exchange.moves)
        for _ in range(chunks):
            self._down(exchange, met, exchange.size / chunks, 0, moved)

    def colors(self, exchange: Exchange, colors: int) -> None:
        """Segments, each in chunks up and down the tree of its color; everybody moves the weights."""
        segment = exchange.size / colors
        chunks = max(1, round(segment / self.links.chunk))
        for color in range(colors):
            met = Ranks.of(self.ranks, self.ranks).hops(color)
            for _ in range(chunks):
                root, total = self._up(exchange, met, segment / chunks, exchange.before)
                self._down(exchange, met, segment / chunks, root, total)

    def ring(self, exchange: Exchange) -> None:
        """A ring in lock step: it begins when the last rank is there, and has the net to itself."""
        every, first, before = range(self.ranks), self.first, exchange.before
        ends = [place(first, self._task(r, exchange, after=exchange.after)) for r in every]
        gets = [place(first, self._task(r, exchange, comes=True, before=before)) for r in every]
        rounds, piece = self.ranks - 1, exchange.size / self.ranks
        seconds = 2 * rounds * (self.links.latency + self.links.lasts(piece))
        seconds += rounds * piece * self.links.adding
        bus = self.ranks
        places = tuple(enumerate(ends)), tuple(enumerate(gets))
        self.messages.append(Message(*places, bus, bus, seconds, 0.0))

    def done(self) -> Exchanged:
        """The graphs and what they post; ranks with the same tasks share one."""
        made: dict[tuple[tuple[_Task, ...], bool], Replay] = {}
        replays = []
        for rank, own in enumerate(self.tasks):
            key = tuple(own), rank > 0
            if key not in made:
                made[key] = _with(self.replay, own, self.idle if rank else frozenset())
            replays.append(made[key])
        return Exchanged(replays, self.messages, self.ranks + 1)

    def _up(
        self,
        exchange: Exchange,
        met: Sequence[Hop],
        size: float,
        before: tuple[int, ...],
    ) -> tuple[int, int]:
        """Add up; returns who has the sum, and the task that made it, before which nobody goes on."""
        made = [self._task(rank, exchange, after=exchange.after) for rank in range(self.ranks)]
        for into, source in met:
            last = (into, source) == met[-1]
            added = self._task(
                into,
                exchange,
                cost=size * self.links.adding,
                comes=True,
                after=(made[into],),
                before=before if last else (),
            )
            self._send((source, made[source]), (into, added), size)
            made[into] = added
        root = met[-1][0]
        return root, made[root]

    def _down(
        self,
        exchange: Exchange,
        met: Sequence[Hop],
        size: float,
        root: int,
        known: int,
    ) -> None:
        """Tell all what the root knows, down the same tree."""
        knows = {root: known}
        for source, to in reversed(met):
            knows[to] = self._task(to, exchange, comes=True, before=exchange.before)
            self._send((source, knows[source]), (to, knows[to]), size)

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
        exchange: Exchange,
        cost: float = 0.0,
        comes: bool = False,
        after: tuple[int, ...] = (),
        before: tuple[int, ...] = (),
    ) -> int:
        self.tasks[rank].append(_Task(cost, comes, after, before, exchange.step))
        return -len(self.tasks[rank])


def _with(replay: Replay, more: Sequence[_Task], idle: frozenset[int]) -> Replay:
    """The replay with further tasks behind the recorded ones, and without the work of some of those."""
    graph = replay.graph
    builder, first = GraphBuilder.of(graph), recorded_tasks(graph)
    for task in more:
        number = builder.task(
            0,
            [],
            EXCHANGED,
            cost=task.cost,
            phase=COMES if task.comes else -1,
            step=task.step,
        )
        builder.follow(number, [place(first, it) for it in task.after])
        for it in task.before:
            builder.precede(number, it)
    made = builder.build(graph.policy)
    costs, shares = np.zeros((len(replay.costs), made.size)), np.zeros(made.size)
    costs[:, :first], shares[:first] = replay.costs[:, :first], replay.shares[:first]
    costs[:, first : first + len(more)] = [task.cost for task in more]
    costs[:, sorted(idle)] = 0.0
    return Replay(made, costs, shares)


def recorded_tasks(graph: TaskGraph) -> int:
    """How many tasks come before the barriers, which a builder makes anew."""
    return sum(task != BARRIER for task in graph.tasks)


def place(first: int, task: int) -> int:
    """The number in its graph of a recorded task, or, below 0, of one behind the `first` recorded ones."""
    return task if task >= 0 else first - 1 - task
