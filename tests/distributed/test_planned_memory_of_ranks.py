"""The memory that a plan of several ranks counts is what they take: with windows nothing is received into."""

from __future__ import annotations

import json

import pytest
from launched import launched

SCRIPT = """
import json, sys
from znnpy.config.training_section import DistributedSection
from znnpy.distributed.world import World
from znnpy.engine import Hardware, Model, Training

# Of the second layer's size: of small ones messages carry the sums between ranks of one host, too.
NET = {"layers": [{"conv": {"channels": 40, "size": size}} for size in (3, 3, 1)]}
strategy = sys.argv[1]
with World.open() as world:
    planned = []
    for shared in (True, False):
        how = DistributedSection(strategy=strategy, shared_memory=shared)
        with Model(NET, 4, batch=4, threads=1, conv="direct", training=Training(microbatch=1),
                   hardware=Hardware(ranks=world, distributed=how)) as model:
            arena = model._engine._arena
            assert arena.bytes == arena._memory.size < model.memory
            planned.append(arena.bytes)
    print(json.dumps(planned), flush=True)
"""


STATES = """
import json, sys
from znnpy.config.training_section import DistributedSection
from znnpy.distributed.world import World
from znnpy.engine import Hardware, Model, Optimizer, Training

NET = {"layers": [{"conv": {"channels": 40, "size": 3}}, {"conv": {"channels": 2, "size": 1}}]}
how = DistributedSection(strategy=sys.argv[1])
with World.open() as world:
    planned = []
    for kind in ("sgd", "adam"):
        with Model(NET, 4, batch=4, threads=1, conv="direct", optimizer=Optimizer(kind),
                   training=Training(microbatch=1),
                   hardware=Hardware(ranks=world, distributed=how)) as model:
            arena = model._engine._arena
            assert arena.bytes == arena._memory.size < model.memory
            planned.append([arena.bytes, len(model.optimizer_state)])
    print(json.dumps([world.rank, *planned]), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["tree", "multicolor"])
def test_only_ranks_that_move_weights_have_room_for_states(strategy: str) -> None:
    for line in launched(2, STATES, strategy):
        rank, (plain, one), (adam, two) = json.loads(line)
        assert (plain < adam, bool(one), bool(two)) == (
            (True, True, True) if strategy == "multicolor" or rank == 0 else (False,) * 3
        )


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["tree", "multicolor"])
def test_rooms_that_windows_spare_are_not_counted(strategy: str) -> None:
    found = [json.loads(line) for line in launched(2, SCRIPT, strategy)]
    assert all(shared <= sent for shared, sent in found)
    assert any(shared < sent for shared, sent in found)  # rank 0 receives gradients
