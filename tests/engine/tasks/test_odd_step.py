"""The odd step of an update is what declaring it anew gives."""

from dataclasses import replace

import numpy as np
import pytest
import random_networks as rn
from model_settings import model_of

from znnpy.distributed.reduction_tree import Ranks
from znnpy.distributed.strategies import strategy
from znnpy.engine.communication.gradient_exchange import Party
from znnpy.engine.memory.allocation import Build
from znnpy.engine.memory.arena import Arena
from znnpy.engine.step_tasks import all_steps, all_transfers, declare, declare_update


def described(step):
    """All that a task is, with its buffers by name."""
    return [
        (
            task.kernel.name, [*task.arguments], task.what, task.cost, task.group, task.stage,
            task.phase, [key[0].name for key in task.between], task.urgent,
            [it.name for it in task.anew], task.divides, len(task.more),
            *[[(it.buffer.name, *it[1:]) for it in regions] for regions in (task.reads, task.writes)],
        )
        for task in step
    ]  # fmt: skip


@pytest.mark.share(10)
@pytest.mark.parametrize("microbatch", [2, 1])
@pytest.mark.parametrize("seed", range(8))
def test_of_random_networks(seed, microbatch):
    network, output = rn.random_network(seed)
    with model_of(
        network, output, batch=2, microbatch=microbatch, loss="square", clip_norm=1.0
    ) as model:
        engine = model._engine
        build, settings = engine._build, engine.settings
        even, odd = (declare_update(build, settings, parity, None) for parity in range(2))
        made = all_steps(build, [even], "update")
    assert described(made[0]) == described(even)
    assert described(made[1]) == described(odd)
    assert_some_are_the_same(made)


def assert_some_are_the_same(made):
    same = np.array([mine is yours for mine, yours in zip(*made, strict=True)])
    assert same.any()
    assert not same.all()


def net():
    """Layers of several messages, and of statistics in float64."""
    sizes = ({"channels": 40, "size": 3, "norm": "batch"}, {"channels": 20, "size": 3})
    return {"input": 1, "layers": [{"conv": it} for it in sizes]}


@pytest.mark.parametrize("near", [False, True])
@pytest.mark.parametrize("how", ["tree", "multicolor", "allreduce"])
def test_of_ranks_whose_messages_have_numbers_of_their_own(how, near):
    beside, way = frozenset({1} if near else ()), strategy(how, colors=2, chunk=4096)
    party = Party(Ranks.of(3, 3), way, 0, near=beside)
    with model_of(net(), 3, batch=3, microbatch=1, loss="square", clip_norm=1.0) as model:
        layout = replace(model._layout, numbers=party.numbers, microbatches=3)
        settings = replace(model._settings, party=party)
        build = Build.new(Arena(), layout, 1)
        # The second step's messages behind those of the first.
        wanted = party.exchange(build)
        even, odd = (declare_update(build, settings, parity, wanted) for parity in range(2))
        found = party.exchange(build)
        (again,) = declare("update", build, settings, found)
        transfers = all_transfers(build, found)
        made = all_steps(build, [again], "update")
    assert described(made[0]) == described(even)
    assert described(made[1]) == described(odd)
    assert transfers == wanted.outbox.transfers
    assert_some_are_the_same(made)
