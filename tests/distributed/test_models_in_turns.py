"""Several models of one world: they take turns, and each makes the bits that it makes alone."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from launched import launched
from ranked import SECONDS, mpiexec

SCRIPT = """
import hashlib, json, sys
import numpy as np
from znnpy.distributed.transfers import Delays
from znnpy.distributed.world import World
from znnpy.engine import Hardware, Model, Training

WIDTHS = [3], [5, 4], [2, 2]

def chain(widths):
    layers = [{"conv": {"channels": width, "size": 3, "function": "relu"}} for width in widths]
    return {"layers": [*layers, {"conv": {"channels": 2, "size": 1}}]}

def batch(model, number):
    own = [np.random.default_rng([number, sample]) for sample in model.samples]
    x = [rng.standard_normal((1, *model.input_shape)) for rng in own]
    return np.stack(x), np.stack([rng.random((2, *model.output_shape)) for rng in own])

def turn(model, number):
    if number % 3 == 2:
        return model.loss_and_gradients(*batch(model, number))[0]
    if number % 3:
        return model.step(*batch(model, number))
    first = model.submit(*batch(model, number))
    model.submit(*batch(model, number + 1000))  # and is left under way
    return model.result(first).loss

def opened(number, strategy):
    return Model(chain(WIDTHS[number]), 3, batch=4, threads=1, conv="direct", loss="square",
                 training=Training(microbatch=1),
                 hardware=Hardware(ranks=world, distributed={"strategy": strategy}))

turns, late, strategies = json.loads(sys.argv[1])
with World.open() as world:
    if late and world.size > 1:
        world.messenger.delay(Delays(late, 0.002))
    models, losses = [], [[] for _ in strategies]
    for number in range(turns):
        if number < len(strategies):  # the later ones while the first are in the middle of it
            models.append(opened(number, strategies[number]))
        for model, own in zip(models, losses):
            own.append(turn(model, number).hex())
    left = [model.parameters for model in models]
    models[0].close()
    last = models[-1].step(*batch(models[-1], turns))
    for model in models:
        model.close()
    digests = [hashlib.sha256(b"".join(it[name].tobytes() for name in sorted(it))).hexdigest() for it in left]
    print(json.dumps([losses, digests, last.hex()]), flush=True)
"""
FAILS = """
from znnpy.distributed.world import World

def deep():
    raise ValueError("what is wrong")

with World.open() as world:
    if world.rank == 1:
        deep()
    world.exchange(None)
"""


def in_turns(ranks: int, turns: int, *strategies: str, late: int = 0) -> list[str]:
    """What ranks say of losses and weights, each once."""
    return sorted(set(launched(ranks, SCRIPT, json.dumps([turns, late, strategies]))))


def test_two_models_take_turns() -> None:
    assert len(in_turns(2, 8, "tree", "multicolor")) == 1


@pytest.mark.slow
def test_many_turns_make_the_bits_of_one_rank() -> None:
    ways = "tree", "multicolor", "auto"
    alone = in_turns(1, 18, *ways)
    assert len(alone) == 1
    for ranks, late in ((2, 0), (4, 0), (2, 1), (4, 1)):
        assert in_turns(ranks, 18, *ways, late=late) == alone, (ranks, late)


@pytest.mark.slow
def test_sums_of_the_library_take_turns() -> None:
    in_turns(3, 30, "allreduce", "blocking", "allreduce")


def test_an_error_among_ranks_says_where_it_comes_from() -> None:
    line = mpiexec(2, sys.executable, "-c", FAILS)
    done = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if line.startswith("rank 1: ")]
    assert said[0] == "rank 1: Traceback (most recent call last):"
    assert "in deep" in said[-2]
    assert said[-1] == "rank 1: ValueError: what is wrong"
