"""Gradients without an update are those of the batch that all ranks share, whatever the loss."""

from __future__ import annotations

import json
from typing import Any

import pytest
from launched import launched

SCRIPT = """
import hashlib, json, sys
import numpy as np
from znnpy.distributed.world import World
from znnpy.engine import Hardware, Model, Training

NET = {"layers": [
    {"conv": {"channels": 5, "size": 3, "function": "relu"}},
    {"conv": {"channels": 2, "size": 1, "function": "logistic"}},
]}

def data(model, samples):
    own = [np.random.default_rng(sample) for sample in samples]
    x = np.stack([rng.standard_normal((1, *model.input_shape)) for rng in own])
    target = np.stack([rng.random((2, *model.output_shape)) < 0.1 * n for n, rng in zip(samples, own)])
    weight = np.stack([rng.random((2, *model.output_shape)) for rng in own])
    return [array.astype(np.float32) for array in (x, target, weight)]

with World.open() as world:
    found = []
    for loss in json.loads(sys.argv[1]):
        with Model(NET, 4, batch=6, threads=1, conv="direct", loss=loss, training=Training(microbatch=1),
                   hardware=Hardware(ranks=world, distributed={"strategy": "tree"})) as model:
            loss, gradients = model.loss_and_gradients(*data(model, model.samples))
            digest = hashlib.sha256(b"".join(gradients[name].tobytes() for name in sorted(gradients)))
            found.append([loss.hex(), digest.hexdigest()])
            assert np.any(gradients[min(gradients)])
    print(json.dumps(found), flush=True)
"""
LOSSES: list[Any] = [
    "square",
    {"kind": "dice", "batch": True},
    {"kind": "bce_dice", "bce": 2, "dice": 0.5},
]


@pytest.mark.slow
def test_all_ranks_have_the_gradients_of_the_whole_batch() -> None:
    (alone,) = launched(1, SCRIPT, json.dumps(LOSSES))
    assert launched(3, SCRIPT, json.dumps(LOSSES)) == [alone] * 3
