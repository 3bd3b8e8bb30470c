"""Simulated ranks send the messages that ranks send in training."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import pytest

import znnpy
from znnpy.distributed.reduction_tree import Ranks
from znnpy.distributed.strategies import Strategy, strategy
from znnpy.distributed.transfers import Transfer, Way
from znnpy.engine.communication.gradient_exchange import Party
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.arena import Arena
from znnpy.engine.step_tasks import all_steps, all_transfers, declare_update
from znnpy.engine.tasks.declaration import Declared
from znnpy.engine.tasks.task_identity import Identity, Kind, Part
from znnpy.profile.simulation import exchanges, urgent
from znnpy.simulate import Links, Replay, exchanged


def net(**first: Any) -> Any:
    """Two layers of several pieces, and a small one."""
    sizes = [{"channels": 40, "size": 3, "function": "relu", **first}, {"channels": 20, "size": 3}]
    return {"input": 1, "layers": [{"conv": it} for it in [*sizes, {"channels": 2, "size": 1}]]}


NETS = {"plain": net(), "normed": net(norm="batch")}
SIZE = 3
RESULTS = 16
"""Bytes of loss and error, which are not simulated."""
Sent = dict[tuple[int, int], list[int]]
"""Bytes of messages by sender and receiver."""


def declared(
    model: znnpy.Model, how: Strategy, rank: int, workers: int = 1
) -> tuple[list[Declared], list[Transfer]]:
    """Tasks of an even and an odd update of one of the ranks with a microbatch each, and its messages."""
    party = Party(Ranks.of(SIZE, SIZE), how, rank)
    layout = replace(
        model._layout, numbers=range(rank, rank + 1), microbatches=SIZE, workers=workers
    )
    settings = replace(model._settings, party=party)
    build = Build.new(Arena(), layout, len(settings.optimizer.state_names))
    exchange = party.exchange(build)
    steps = all_steps(build, [declare_update(build, settings, 0, exchange)], "update")
    return [task for step in steps for task in step], all_transfers(build, exchange)


def trained(model: znnpy.Model, how: Strategy) -> Sent:
    """What the graphs of ranks send."""
    found = defaultdict(list)
    for rank in range(SIZE):
        for it in declared(model, how, rank)[1]:
            if it.way is Way.SEND and (it.number, it.bytes) != (8, RESULTS):
                found[rank, it.peer].append(it.bytes)
    return found


def simulated(model: znnpy.Model, how: Strategy) -> Sent:
    """What simulated ranks do."""
    graph, links = model.task_graph, Links(bandwidth=1.0)
    layers = exchanges(graph, model.added_up())
    found = defaultdict(list)
    for message in exchanged(Replay.of(graph), layers, SIZE, how, links).messages:
        found[message.source, message.target].append(round(message.lasts))
    return found


@pytest.mark.parametrize(
    ("name", "how"),
    [  # with `tree`, running statistics go up as sums in float64, and come down as they are kept
        ("plain", strategy("tree")),
        *[("plain", strategy("tree", chunk=chunk)) for chunk in (3_700, 20_000)],
        ("normed", strategy("multicolor")),
        ("normed", strategy("multicolor", colors=2, chunk=20_000)),
    ],
)
def test_simulated_ranks_send_what_ranks_send(name: str, how: Strategy) -> None:
    with znnpy.Model(NETS[name], 4, threads=1, conv="direct") as model:
        sent = trained(model, how)
        assert {pair: sorted(it) for pair, it in simulated(model, how).items()} == {
            pair: sorted(it) for pair, it in sent.items()
        }
    assert len(sent) > 2


@pytest.mark.parametrize("name", NETS)
def test_every_gradient_has_makers_and_users(name: str) -> None:
    with znnpy.Model(NETS[name], 4, threads=1, conv="direct") as model:
        found = exchanges(model.task_graph, model.added_up())
    assert len(found) == 2 * 3
    assert all(it.after and it.moves for layer in found for it in layer)


OVER_RANKS = {Part.RANKS, Part.COPIED}
"""What adds up and copies over ranks: simulated as tasks of its own."""


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("how", [strategy("tree"), strategy("multicolor"), strategy("blocking")])
def test_simulated_ranks_put_first_what_ranks_put_first(how: Strategy, workers: int) -> None:
    # Cut for so many, each leaf that is declared is a task of its own.
    many = znnpy.Execution(cut_for=4096)
    with znnpy.Model(NETS["plain"], 4, threads=1, conv="direct", execution=many) as model:
        graph = model.task_graph
        own = [
            it.what
            for it in declared(model, how, 0, workers)[0]
            if it.urgent and it.what.kind is not Kind.MESSAGE and it.what.part not in OVER_RANKS
        ]
    layers, first = exchanges(graph, model.added_up()), urgent(graph, how, workers)
    for replay in exchanged(Replay.of(graph), layers, SIZE, how, Links(), first).replays:
        found = [
            task
            for task, band in zip(replay.graph.tasks, replay.graph.band, strict=True)
            if band == 0 and isinstance(task, Identity)
        ]
        assert Counter(found) == Counter(own)
    assert bool(own) == (how.weights_down and workers == 1)
