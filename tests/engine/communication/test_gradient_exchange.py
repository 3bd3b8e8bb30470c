"""Graphs of ranks together: every message comes, no token is doubled, and layers wait for their own sums only."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from declared_updates import SIZE, chain

from znnpy.distributed.errors import DistributedError
from znnpy.distributed.reduction_tree import Ranks
from znnpy.distributed.shared_memory import Windows
from znnpy.distributed.strategies import strategy
from znnpy.distributed.transfers import Transfer, Way
from znnpy.engine.communication.gradient_exchange import Party
from znnpy.engine.emit import emit_update
from znnpy.engine.layers.optimizer import Optimizer
from znnpy.engine.memory.allocation import STEPS, Build
from znnpy.engine.memory.arena import Arena
from znnpy.engine.memory.layout import Layout
from znnpy.engine.step_tasks import all_steps, all_transfers
from znnpy.engine.tasks.dependencies import connect
from znnpy.engine.tasks.step import Step
from znnpy.engine.tasks.task_identity import Part, Pass
from znnpy.geometry import fit
from znnpy.graph import GraphBuilder, TaskGraph
from znnpy.network import load_network, objectives
from znnpy.plan import PASSES, LayerPlan, Method, Plan

NET = chain(2, 40, 17, 3)
NORMED = {
    "input": 1,
    "layers": [
        {"conv": {"channels": 20, "size": 3, "function": "relu", "norm": "batch"}},
        {"conv": {"channels": 2, "size": 3}},
    ],
}
WAYS = [
    strategy("tree"),
    strategy("tree", chunk=4096),
    strategy("multicolor", colors=4, chunk=4096),
    strategy("multicolor", colors=2),  # every rank adds up layers as small as these
    strategy("allreduce", chunk=40_000),
    strategy("allreduce", chunk=100),
    strategy("blocking"),
]


@dataclass
class Rank:
    """One rank's graph, run in an order that is drawn, task by task."""

    graph: TaskGraph
    transfers: list[Transfer]
    ready: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=lambda: [0] * STEPS)

    def __post_init__(self) -> None:
        self.missing = self.graph.initial.copy()
        self.runs = np.zeros(self.graph.size, np.int64)
        self.own = [np.flatnonzero(self.graph.step == parity) for parity in range(STEPS)]

    def release(self, phase: int) -> None:
        for task in np.flatnonzero(self.graph.phase == phase):
            self._arrive(task)

    def begin(self, most: int) -> None:
        """Release each parity whose last step is complete, as engines do."""
        for parity in range(STEPS):
            if (
                self.steps[parity] < most
                and (self.runs[self.own[parity]] == self.steps[parity]).all()
            ):
                self.steps[parity] += 1
                self.release(parity)

    def run(self, draw: random.Random) -> int | None:
        """Run a ready task; the number of a message, if it posted one."""
        task = self.ready.pop(draw.randrange(len(self.ready)))
        graph = self.graph
        self.missing[task] = graph.joins[task]
        self.runs[task] += 1
        for after in graph.successors[
            graph.successor_starts[task] : graph.successor_starts[task + 1]
        ]:
            self._arrive(after)
        posts = getattr(graph.tasks[task], "part", None) is Part.POST
        return int(graph.arguments(task)[1]) if posts else None

    def _arrive(self, task: int) -> None:
        assert self.missing[task] > 0, f"a token too early for {self.graph.tasks[task].label}"
        self.missing[task] -= 1
        if self.missing[task] == 0:
            self.ready.append(task)


def made(
    rank: int,
    size: int,
    how: Any,
    net: Any = NET,
    clip_norm: float | None = None,
    near: int = 1,
    workers: int = 1,
) -> Rank:
    """The graph of one of `size` ranks with a microbatch each; so many of them share a host."""
    network = load_network(net)
    direct = LayerPlan.of(*[Method("direct")] * len(PASSES))
    plan = Plan({edge.name: direct for edge in network.edges if edge.kind == "conv"})
    layout = Layout(
        network, fit(network, SIZE), plan, 1, training=True,
        workers=workers, numbers=range(rank, rank + 1), microbatches=size,
    )  # fmt: skip
    beside = frozenset(
        other for other in range(size) if other != rank and other // near == rank // near
    )
    build = Build.new(Arena(), layout, 1)
    exchange = Party(Ranks.of(size, size), how, rank, near=beside).exchange(build)
    step = Step()
    emit_update(step, build, objectives(network, "square"), Optimizer(), clip_norm, exchange)
    transfers = all_transfers(build, exchange)
    return Rank(connect(all_steps(build, [step.tasks], "update")).build(), transfers)


@pytest.mark.share(15)
@pytest.mark.quick(7)
@pytest.mark.parametrize("how", WAYS, ids=lambda how: f"{how.name} {how.colors} {how.chunk}")
@pytest.mark.parametrize(
    ("size", "net", "clip_norm", "near"),
    [
        (2, NORMED, None, 1),
        (2, NORMED, 1.0, 2),
        (4, NET, 1.0, 2),
        (5, NET, None, 1),
        (4, NET, None, 4),
    ],
)
def test_every_message_comes_and_no_token_is_doubled(
    how: Any, size: int, net: Any, clip_norm: float | None, near: int
) -> None:
    draw, most = random.Random(size), 3
    ranks = [made(rank, size, how, net, clip_norm, near) for rank in range(size)]
    posted: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    under_way: list[list[tuple[int, int]]] = []
    for _ in range(1 << 20):
        for rank in ranks:
            rank.begin(most)
        busy = [number for number, rank in enumerate(ranks) if rank.ready]
        if under_way and (not busy or draw.random() < 0.3):
            for number, message in under_way.pop(draw.randrange(len(under_way))):
                ranks[number].release(ranks[number].transfers[message].phase)
        elif busy:
            number = draw.choice(busy)
            message = ranks[number].run(draw)
            if message is not None:
                it = ranks[number].transfers[message]
                ends = {Way.SEND: (number, it.peer), Way.RECEIVE: (it.peer, number), Way.SUM: None}
                both = posted[it.tag, ends[it.way]]
                both.append((number, message))
                assert len({ranks[n].transfers[m].bytes for n, m in both}) == 1
                if len(both) == (size if it.way is Way.SUM else 2):
                    under_way.append(both.copy())
                    both.clear()
        else:
            break
    assert not any(posted.values())
    for rank in ranks:
        assert (rank.runs == most).all(), [
            rank.graph.tasks[task].label for task in np.flatnonzero(rank.runs != most)[:5]
        ]


def test_each_phase_of_messages_has_tasks_and_is_of_one_message() -> None:
    rank = made(0, 4, strategy("multicolor", colors=4, chunk=4096))
    phases = [transfer.phase for transfer in rank.transfers]
    assert phases == list(range(STEPS, STEPS + len(phases)))
    assert set(rank.graph.phase.tolist()) == {-1, *range(STEPS + len(phases))}


def reached(graph: TaskGraph, sources: list[int]) -> set[int]:
    """Tasks of an even and the odd step after it that come after some."""
    before, after = graph.edges(carried=False)
    successors: dict[int, list[int]] = defaultdict(list)
    for task, follower in zip(before.tolist(), after.tolist(), strict=True):
        successors[task].append(follower)
    found, waiting = set[int](), list(sources)
    while waiting:
        fresh = [task for task in successors[waiting.pop()] if task not in found]
        found.update(fresh)
        waiting += fresh
    return found


def tasks(graph: TaskGraph, parity: int, part: Part, owner: str | None = None) -> list[int]:
    return [
        number
        for number, what in enumerate(graph.tasks)
        if what.part is part and graph.step[number] == parity and owner in (None, what.owner)
    ]


def forward(graph: TaskGraph, parity: int, owner: str) -> set[int]:
    return {
        number
        for number, what in enumerate(graph.tasks)
        if (what.owner, what.serves) == (owner, Pass.FORWARD) and graph.step[number] == parity
    }


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("how", WAYS[:4], ids=lambda how: f"{how.name} {how.colors}")
def test_the_next_forward_pass_waits_layer_by_layer(rank: int, how: Any) -> None:
    """What brings a late layer's weights or sums is waited for by that layer and later ones alone."""
    graph = made(rank, 2, how).graph
    edges = load_network(NET).edges
    first, last = edges[0].name, edges[-1].name
    arrivals = {
        edge.name: [
            task
            for part in (Part.RECEIVED, Part.RANKS)
            for owner in (edge.name, edge.target)  # messages are called after what they begin with
            for task in tasks(graph, 0, part, owner)
        ]
        for edge in edges
    }
    moves = {owner: tasks(graph, 0, Part.UPDATE, owner) or arrivals[owner] for owner in arrivals}
    assert all(moves.values())
    for owner in (first, last):
        after = reached(graph, moves[owner])
        assert forward(graph, 1, last) <= after
        assert bool(forward(graph, 1, first) & after) == (owner == first)


@pytest.mark.parametrize("how", [strategy("tree"), strategy("multicolor", colors=2)])
def test_what_other_ranks_wait_for_comes_first(how: Any) -> None:
    seen = set[Part]()
    for rank in range(4):
        graph = made(rank, 4, how, near=2).graph
        for part in (Part.POST, Part.RANKS, Part.RECEIVED, Part.COPIED):
            found = tasks(graph, 0, part)
            seen |= {part} if found else set()
            assert (graph.priority[found] == graph.priority.max()).all()
            assert not graph.band[found].any()
    assert len(seen) == 4


def test_the_thread_for_messages_runs_what_is_of_messages_alone() -> None:
    graph = made(1, 4, strategy("multicolor", colors=2), near=2).graph
    parts = {Part.POST, Part.SENT, Part.RECEIVED, Part.RANKS, Part.COPIED}
    assert {what.part for what in graph.tasks} > parts
    assert graph.light.tolist() == [what.part in parts for what in graph.tasks]
    again = GraphBuilder.of(graph).build()
    assert (again.light == graph.light).all()


def test_weights_that_others_wait_for_come_before_what_is_computed_here() -> None:
    tree, colors = strategy("tree"), strategy("multicolor")
    for how, rank, workers in ((tree, 0, 1), (tree, 1, 1), (tree, 1, 2), (colors, 0, 1)):
        graph = made(rank, 2, how, workers=workers).graph
        for what, band in zip(graph.tasks, graph.band, strict=True):
            if what.serves in (Pass.WEIGHT, Pass.UPDATE) and what.part is not Part.RANKS:
                assert (band == 0) == (how is tree and workers == 1)
            if what.serves in (Pass.FORWARD, Pass.BACKWARD, Pass.LOSS):
                assert band > 0


def test_gradients_leave_layer_by_layer() -> None:
    """A later layer's gradient is posted without waiting for those of earlier ones."""
    rank = made(1, 2, strategy("tree"))
    graph = rank.graph
    first, *_, last = [edge.name for edge in load_network(NET).edges]
    of_first = [
        number
        for number, what in enumerate(graph.tasks)
        if (what.owner, what.serves) == (first, Pass.WEIGHT) and graph.step[number] == 0
    ]
    after = reached(graph, of_first)
    sent: dict[str, list[int]] = {first: [], last: []}
    for post in tasks(graph, 0, Part.POST):
        transfer = rank.transfers[int(graph.arguments(post)[1])]
        for owner in set(transfer.what.split("/")) & sent.keys():
            sent[owner] += [post] * (transfer.way is Way.SEND)
    assert set(sent[first]) <= after
    assert sent[first]
    assert sent[last]
    assert not set(sent[last]) & after


def test_who_is_waited_for_elsewhere_runs_first() -> None:
    graph = made(1, 2, strategy("tree")).graph
    posts = tasks(graph, 0, Part.POST)
    assert (graph.priority[posts] == graph.priority.max()).all()


def test_a_host_whose_memory_is_hidden_after_it_was_planned_with_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Plans have no rooms for what is to be read where it is."""
    world: Any = SimpleNamespace(
        exchange=lambda told: [told, told], messenger=SimpleNamespace(address=0)
    )
    network = load_network(NET)
    direct = LayerPlan.of(*[Method("direct")] * len(PASSES))
    plan = Plan({edge.name: direct for edge in network.edges})
    build = Build.new(Arena(), Layout(network, fit(network, SIZE), plan, 1, training=True), 1)
    party = Party(Ranks.of(2, 2), strategy("tree"), 0, world, frozenset({1}))
    for shifts in ({1: 4096}, {}):
        found = SimpleNamespace(shifts=shifts)
        monkeypatch.setattr(Windows, "open", lambda *_, found=found: found)
        if shifts:
            assert party.seeing(build).exchange(build).outbox.shifts == shifts
        else:
            with pytest.raises(DistributedError, match="shared_memory: false"):
                party.seeing(build)
    alone = Party(Ranks.of(2, 2), strategy("tree"), 0, world)
    assert alone.seeing(build) is alone
