"""Milliseconds of a core that a training patch takes, by distortion, on the sample of FIB-SEM.

    python scripts/bench_augmentation.py [--shape 24 48 48] [--patches 40] [--only rotate elastic]
    python scripts/bench_augmentation.py --updates 40 [--rounds 6]

Counted is the time of the thread that prepares patches, so that others at work matter less. Each distortion is made of
every patch, in the last line all are as often as by their defaults.

With `--updates`: milliseconds of an update of `volumes/fibsem.yaml`, without any and with all by their defaults, in
turns: of the processor, whichever thread, by the clock, and of those the threads that prepare patches; the least of all
rounds. Below, how much longer updates with all take than those without beside them, the median of all rounds: others at
work slow down both, so it says more on a busy machine. The order changes from round to round.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from znnpy.config import load_config
from znnpy.config.augment_section import DISTORTIONS, AugmentSection
from znnpy.config.models import Config
from znnpy.data.opening import open_volume
from znnpy.data.sampling.augmentation import Augmentation
from znnpy.data.sampling.sample import InputPatch, OutputPatch, Patch
from znnpy.data.sampling.sampler import Sampler
from znnpy.data.sampling.targets import BoundaryTarget
from znnpy.data.scene import Scene
from znnpy.data.volume import ArrayVolume
from znnpy.distributed.world import World
from znnpy.engine.model import Model
from znnpy.infer.config_model import training_model
from znnpy.network import trained_network, training_losses
from znnpy.train.shards import PeriodicSource, training_source
from znnpy.train.update_driver import loop_batches, made_updates

SAMPLE = Path(__file__).parents[1] / "volumes" / "fibsem"
ALWAYS = {"probability": 1.0}
RATE = 0.003  # of the recipe


def cost(scene: Scene, keys: dict[str, Any], shape: tuple[int, int, int], patches: int) -> str:
    """Return mean and median of the milliseconds of some patches."""
    augmentation = Augmentation(distortions=AugmentSection.model_validate(keys) if keys else None)
    target = BoundaryTarget(1)
    sampler = Sampler(
        [scene],
        {"in": InputPatch(shape)},
        {"out": OutputPatch(shape, target)},
        augmentation=augmentation,
    )
    sampler.samples(range(10))  # kernels are compiled, and matrices made
    taken = []
    for number in range(patches):
        began = time.thread_time()
        sampler.sample(number)
        taken.append(1e3 * (time.thread_time() - began))
    return f"{np.mean(taken):7.2f} {np.median(taken):7.2f}"


class Counted:
    """A source of patches that counts the time of the threads that ask it."""

    def __init__(self, source: PeriodicSource) -> None:
        self._source, self._lock, self.spent = source, Lock(), 0.0

    def periods(self, iteration: int) -> Iterator[int]:
        """Yield the ends of periods, as the source does."""
        return self._source.periods(iteration)

    def samples(self, numbers: Sequence[int]) -> Patch:
        """Return patches, as the source does."""
        began = time.thread_time()
        found = self._source.samples(numbers)
        with self._lock:
            self.spent += time.thread_time() - began
        return found


def round_of(model: Model, config: Config, count: int) -> tuple[float, float, float]:
    """Return milliseconds an update: of the processor, by the clock, and of the threads that prepare patches."""
    network = trained_network(config)
    with ExitStack() as inner:
        source = Counted(training_source(inner, config, network, World(), 0))
        batches = loop_batches(source, training_losses(config, network), 1, 0, model.samples)
        ready = inner.enter_context(closing(batches))
        next(ready)
        began = time.process_time(), time.monotonic(), source.spent
        for _ in made_updates(model, islice(ready, count), lambda _: RATE):
            pass
        model.drain()
        ended = time.process_time(), time.monotonic(), source.spent
    processor, clock, prepared = (1e3 * (b - a) / count for a, b in zip(began, ended, strict=True))
    return processor, clock, prepared


def updates(count: int, rounds: int, threads: int) -> None:
    """Print what updates take with and without all distortions."""
    recipe = SAMPLE.with_suffix(".yaml")
    own = ["data.test=[]", f"run.threads={threads}"]
    every = [f"augment.{name}={{}}" for name in DISTORTIONS]
    configs = {"none": load_config(recipe, own), "all": load_config(recipe, [*own, *every])}
    taken: dict[str, list[tuple[float, float, float]]] = {name: [] for name in configs}
    with training_model(configs["none"], trained_network(configs["none"]), None) as model:
        for number in range(-1, rounds):  # the first warms up
            for name in list(configs)[:: 1 if number % 2 else -1]:
                found = round_of(model, configs[name], count)
                if number >= 0:
                    taken[name].append(found)
    print(f"{'':6}{'processor':>11} {'clock':>8} {'patches':>8}")
    for name, rows in taken.items():
        least = np.min(rows, axis=0)
        print(f"{name:6}{least[0]:11.2f} {least[1]:8.2f} {least[2]:8.2f}")
    more = np.median(np.subtract(taken["all"], taken["none"]), axis=0)
    print(f"{'more':6}{more[0]:11.2f} {more[1]:8.2f} {more[2]:8.2f}")


def main() -> None:
    """Print a line for each distortion, or what updates take."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", type=int, nargs=3, default=(24, 48, 48), metavar=("Z", "Y", "X"))
    parser.add_argument("--patches", type=int, default=40)
    parser.add_argument("--only", nargs="*", default=DISTORTIONS, choices=DISTORTIONS)
    parser.add_argument("--updates", type=int, metavar="N")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    if given.updates:
        updates(given.updates, given.rounds, given.threads)
        return
    cases: dict[str, dict[str, Any]] = {"none": {}}
    cases |= {name: {name: ALWAYS} for name in given.only}
    if "rotate" in given.only:
        cases["rotate, any axis"] = {"rotate": ALWAYS | {"axis": "any"}}
    cases["all, as often as they are"] = {name: {} for name in given.only}
    print(f"{'':26}{'mean':>7} {'median':>7}")
    with (
        open_volume(SAMPLE / "train-image.h5", "stack") as image,
        open_volume(SAMPLE / "train-gt.lzf.h5", "stack") as labels,
    ):
        # In memory, as in training.
        loaded = [ArrayVolume(it.read((0, 0, 0), it.extent)) for it in (image, labels)]
        scene = Scene({"in": loaded[0]}, {"out": loaded[1]})
        for name, keys in cases.items():
            print(f"{name:26}{cost(scene, keys, tuple(given.shape), given.patches)}")


if __name__ == "__main__":
    main()
