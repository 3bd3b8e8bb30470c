"""The first updates of a recipe by znnpy and by PyTorch: whether their losses are the same, and how fast each is."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np

from peers.torch_training import Training
from znnpy.config.models import Config
from znnpy.data.sampling.prefetch import make_batch
from znnpy.distributed.world import World
from znnpy.infer.config_model import training_model
from znnpy.network import trained_network, training_losses
from znnpy.train.learning_rate import learning_rate
from znnpy.train.patch_sources import open_sampler
from znnpy.train.shards import training_source
from znnpy.train.update_driver import loop_batches, made_updates

WARM = 3  # updates that are not timed
PARTS = 5  # of the updates, a line each


@dataclass(frozen=True)
class Made:
    """Losses of the first updates, and of those after the first few the seconds of each, and those of the processor."""

    losses: list[float]
    clock: list[float]
    processor: float

    @property
    def seconds(self) -> float:
        """The median time of an update."""
        return float(np.median(self.clock))


def ours(config: Config, count: int) -> Made:
    """Make updates by znnpy, one in flight as in training."""
    network = trained_network(config)
    with ExitStack() as stack:
        source = training_source(stack, config, network, World(), 0)
        model = stack.enter_context(training_model(config, network, None))
        losses = training_losses(config, network)
        batches = loop_batches(source, losses, config.training.batch, 0, model.samples)
        ready = stack.enter_context(closing(batches))
        found, ends, begun = list[float](), list[float](), 0.0
        made = made_updates(
            model, islice(ready, count), lambda number: learning_rate(config.training, number)
        )
        for number, result in enumerate(made, start=1):
            found.append(result.loss)
            ends.append(time.monotonic())
            if number == WARM + 1:
                begun = time.process_time()
        model.drain()
        spent = time.process_time() - begun
    return Made(found, _apart(ends), spent / (count - WARM - 1))


def theirs(config: Config, count: int) -> Made:
    """Make updates by PyTorch."""
    network = trained_network(config)
    own, found, ends, begun = Training(config, network), list[float](), list[float](), 0.0
    with ExitStack() as stack:
        sampler = open_sampler(stack, config, network, config.data.train, "data.train")
        for number in range(count):
            batch = make_batch(sampler, number, config.training.batch)
            found.append(own.update(batch, learning_rate(config.training, number)))
            ends.append(time.monotonic())
            if number == WARM:
                begun = time.process_time()
        spent = time.process_time() - begun
    return Made(found, _apart(ends), spent / (count - WARM - 1))


def _apart(ends: list[float]) -> list[float]:
    return [b - a for a, b in pairwise(ends[WARM:])]


def table(ours: Made, theirs: Made) -> str:
    """Return losses side by side, and rates, as tables in Markdown."""
    lines = [
        "| updates | mean loss, znnpy | PyTorch | largest relative difference of an update |",
        "|---|---|---|---|",
    ]
    one, other = np.array(ours.losses), np.array(theirs.losses)
    apart = abs(one - other) / abs(other)
    for part in np.array_split(np.arange(len(one)), PARTS):
        cells = (
            f"{part[0] + 1} to {part[-1] + 1}",
            f"{one[part].mean():.5f}",
            f"{other[part].mean():.5f}",
        )
        lines.append(f"| {' | '.join(cells)} | {apart[part].max():.1e} |")
    lines += [
        "",
        "| | updates/s | in an hour | ms of an update | ms of the processor |",
        "|---|---|---|---|---|",
    ]
    for name, made in (("znnpy", ours), ("PyTorch", theirs)):
        rate = 1 / made.seconds
        lines.append(
            f"| {name} | {rate:.3g} | {3600 * rate:,.0f} | {1e3 * made.seconds:.1f} | {1e3 * made.processor:.0f} |"
        )
    lines += ["", f"znnpy makes {theirs.seconds / ours.seconds:.1f} updates for one of PyTorch"]
    return "\n".join(lines)
