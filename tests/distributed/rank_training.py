"""A tiny network trained by one rank or by several, and what comes of it, as text."""

from __future__ import annotations

import hashlib
import json
import random
import sys
import time
from typing import Any

import numpy as np

from znnpy.config.training_section import DistributedSection
from znnpy.distributed.transfers import Delays
from znnpy.distributed.world import World
from znnpy.engine import Hardware, Model, Training
from znnpy.engine.layers.optimizer import Optimizer

KEYS = ("strategy", "colors", "chunk", "shared_memory")
NETS: dict[str, tuple[dict[str, Any], Any]] = {
    "chain": (
        {
            "layers": [
                {"conv": {"channels": 6, "size": 3, "function": "relu", "norm": "batch"}},
                {"dropout": 0.6},
                {"max_filter": 2},
                {
                    "conv": {
                        "channels": 34,
                        "size": 3,
                        "function": "tanh",
                        "weight_standardization": True,
                    }
                },
                {"conv": {"channels": 2, "size": 1}},
            ]
        },
        (2, 5, 6),
    ),
    "unet": ({"unet": {"widths": [4, 6], "down": 2, "convs": 1, "norm": "batch"}}, (4, 8, 8)),
    "lenet": (
        {
            "layers": [
                {"conv": {"channels": 5, "size": [1, 5, 5], "function": "linear"}},
                {"max_pool": {"size": [1, 2, 2], "stride": [1, 2, 2]}},
                {"conv": {"channels": 40, "size": [1, 4, 4], "function": "relu"}},
                {"conv": {"channels": 10, "size": 1}},
            ]
        },
        (1, 1, 1),
    ),
}


def batch(model: Model, update: int) -> tuple[Any, Any, Any]:
    """This rank's samples of an update: inputs, targets, weights that differ from sample to sample."""
    found: list[list[Any]] = [[], [], []]
    images = model.network.outputs[0].channels
    for sample in model.samples:
        rng = np.random.default_rng([update, sample])
        weight = rng.random((images, *model.output_shape)) * (rng.random() < 0.8)
        arrays = rng.standard_normal((1, *model.input_shape)), rng.random(weight.shape), weight
        for column, array in zip(found, arrays, strict=True):
            column.append(array.astype(np.float32))
    inputs, targets, weights = (np.stack(column) for column in found)
    return inputs, targets, weights


def trained(world: World, case: dict[str, Any]) -> dict[str, Any]:
    """After some updates: hashes of the next gradients, parameters, rank 0's optimiser; losses of the last ones."""
    net, output = NETS[case["net"]]
    how = DistributedSection(**{key: case[key] for key in KEYS if key in case})
    late = random.Random(case.get("delays", 0) * 1000 + world.rank)
    with Model(
        net, output, batch=case["batch"],
        threads=case.get("threads", 2), seed=3, conv=case.get("conv", "direct"), loss="square",
        optimizer=Optimizer("adam"),
        training=Training(microbatch=case["microbatch"], clip_norm=case.get("clip_norm")),
        hardware=Hardware(ranks=world, distributed=how),
    ) as model:  # fmt: skip
        tickets, losses = list[int](), list[Any]()
        for update in range(case.get("updates", 3)):
            if case.get("delays"):
                time.sleep(late.uniform(0, 0.01))
            tickets.append(model.submit(*batch(model, update), learning_rate=0.01))
            if update % 2:
                losses += [model.result(ticket) for ticket in tickets[-2:]]
        loss, gradients = model.loss_and_gradients(*batch(model, len(tickets)))
        return {
            "gradients": [loss.hex(), _hash(gradients)],
            "weights": _hash(model.parameters),
            "states": _hash(model.optimizer_state) if world.rank == 0 else None,
            "losses": [[it.loss.hex(), it.error.hex()] for it in losses],
        }


def _hash(arrays: dict[str, Any]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()[:16]


def main() -> None:
    """Rank 0 prints what comes of the cases of the command line, by number; all ranks agree."""
    with World.open() as world:
        for number, case in json.loads(sys.argv[1]):
            if "delays" in case and world.size > 1:
                world.messenger.delay(Delays(case["delays"], 0.002))
            found = trained(world, case)
            for what in ("gradients", "weights", "losses"):
                assert world.exchange(found[what]) == [found[what]] * world.size, case
            if world.rank == 0:
                print(json.dumps([number, found]), flush=True)


if __name__ == "__main__":
    main()
