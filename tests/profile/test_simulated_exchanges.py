"""Simulated ranks send the messages that ranks send in training."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest

import znnpy
from znnpy.distributed.ranks import Ranks
from znnpy.distributed.strategies import Strategy, strategy
from znnpy.distributed.transfers import Way
from znnpy.engine.communication.exchange import Party
from znnpy.engine.memory.arena import Arena
from znnpy.engine.memory.build import STEPS, Build
from znnpy.engine.steps import declare_update
from znnpy.profile.simulation import exchanges
from znnpy.simulate import Links, Replay, exchanged


def net(**first: Any) -> Any:
    """Two layers of several pieces, and a small one."""
    sizes = [{"images": 40, "size": 3, "function": "relu", **first}, {"images": 20, "size": 3}]
    return {"input": 1, "layers": [{"conv": it} for it in [*sizes, {"images": 2, "size": 1}]]}


NETS = {"plain": net(), "normed": net(norm="batch")}
SIZE = 3
RESULTS = 16
"""Bytes of loss and error, which are not simulated."""
Sent = dict[tuple[int, int], list[int]]
"""Bytes of messages by sender and receiver."""


def trained(model: znnpy.Model, how: Strategy) -> Sent:
    """What the graphs of ranks with a microbatch each send."""
    found = defaultdict(list)
    for rank in range(SIZE):
        party = Party(Ranks.of(SIZE, SIZE), how, rank)
        layout = replace(model._layout, numbers=range(rank, rank + 1), microbatches=SIZE)
        settings, exchange = replace(model._settings, party=party), party.exchange()
        build = Build.new(Arena(), layout, len(settings.optimizer.state_names))
        for parity in range(STEPS):
            declare_update(build, settings, parity, exchange)
        for it in exchange.outbox.transfers:
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
        ("plain", strategy("tree", chunk=20_000)),
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
