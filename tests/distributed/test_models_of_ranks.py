"""Ranks with other models, or vectors of other lengths, are refused: their sums would be of different things."""

from __future__ import annotations

import json

import pytest
from launched import launched

SCRIPT = """
import json, sys
from znnpy.distributed.world import World
from znnpy.engine import Hardware, Model, Training
from znnpy.engine.communication import gradient_exchange
from znnpy.errors import ZnnpyError

lanes = gradient_exchange.LANES


def trains(world, other):
    '''What is said of a model that is another one on rank 1.'''
    gradient_exchange.LANES = lanes * (1 + (other == "lanes"))
    channels = 5 if other == "channels" else 4
    layers = [{"conv": {"channels": channels, "size": 3}}, {"conv": {"channels": 2, "size": 1}}]
    try:
        with Model(
            {"layers": layers}, 5 if other == "size" else 4, batch=2, threads=1, conv="direct",
            seed=int(other == "seed"), optimizer="adam" if other == "optimizer" else "sgd",
            training=Training(microbatch=1, clip_norm=1.0 if other == "clip_norm" else None),
            hardware=Hardware(ranks=world),
        ):
            return "trains"
    except ZnnpyError as error:
        return str(error)


with World.open() as world:
    print(json.dumps([trains(world, what if world.rank else "") for what in sys.argv[1:]]))
"""
CASES = {
    "nothing": "trains",
    "lanes": "floats in a vector: rank 0 has ",
    "channels": "parameter conv1: rank 0 has [4, 1, 3, 3, 3], rank 1 has [5, ",
    "size": "output output: rank 0 has [4, 4, 4], rank 1 has [5, 5, 5], ",
    "seed": "seed: rank 0 has 0, rank 1 has 1, ",
    "optimizer": "optimizer: ",
    "clip_norm": "clip_norm: rank 0 has nothing, rank 1 has 1.0, ",
}


@pytest.mark.slow
def test_what_differs_is_told_by_all() -> None:
    one, other = map(json.loads, launched(2, SCRIPT, *CASES))
    assert one == other
    for said, begin in zip(one, CASES.values(), strict=True):
        assert said.startswith(begin)
