"""Milliseconds of a core that a training patch takes, by distortion, on the sample of FIB-SEM.

    python scripts/bench_augmentation.py [--shape 24 48 48] [--patches 40] [--only rotate elastic]
    python scripts/bench_augmentation.py --updates 20 [--rounds 60]

Counted is the time of the thread that prepares patches, so that others at work matter less. Each distortion is made of
every patch, in the last line all are as often as by their defaults.

With `--updates`: milliseconds of an update of `volumes/fibsem.yaml`, of the processor, whichever thread, by the clock,
and of the threads that prepare patches. One run goes on without any distortion and with all by their defaults, so many
updates each, in turns: medians of both, and below how much longer each turn with all took than the mean of its two
neighbours without: the median, and an interval that holds it at least 95 times in 100.
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
from numpy.typing import NDArray
from scipy.stats import binom

from znnpy.config import load_config
from znnpy.config.augment_section import DISTORTIONS, AugmentSection
from znnpy.data.opening import open_volume
from znnpy.data.sampling.augmentation import Augmentation
from znnpy.data.sampling.sample import InputPatch, OutputPatch, Patch
from znnpy.data.sampling.sampler import Sampler
from znnpy.data.sampling.targets import BoundaryTarget
from znnpy.data.scene import Scene
from znnpy.data.volume import ArrayVolume
from znnpy.distributed.world import World
from znnpy.infer.config_model import training_model
from znnpy.network import trained_network, training_losses
from znnpy.train.shards import PeriodicSource, training_source
from znnpy.train.update_driver import loop_batches, made_updates

SAMPLE = Path(__file__).parents[1] / "volumes" / "fibsem"
ALWAYS = {"probability": 1.0}
RATE = 0.003  # of the recipe
AHEAD = 4  # so many updates before its own a batch is begun to be prepared
FEWEST = 6  # differences whose least and largest hold their median 95 times in 100


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


class Turns:
    """A source of patches, of several in turns of `count` updates, that counts the time of the threads that ask it."""

    def __init__(self, sources: Sequence[PeriodicSource], count: int) -> None:
        self._sources, self._count = sources, count
        self._lock, self.spent = Lock(), 0.0

    def periods(self, iteration: int) -> Iterator[int | None]:
        """Yield once, as all patches are always ready."""
        yield None

    def sample(self, index: int) -> Patch:
        """Return the patch of an update."""
        return self.samples([index])

    def samples(self, numbers: Sequence[int]) -> Patch:
        """Return patches of an update, by the source whose turn it is."""
        source = self._sources[numbers[0] // self._count % len(self._sources)]
        began = time.thread_time()
        found = source.samples(numbers)
        with self._lock:
            self.spent += time.thread_time() - began
        return found

    def verify(self) -> None:
        """Raise ChangedError unless all that was read came from the files that were opened."""
        for source in self._sources:
            source.verify()


def turns(count: int, rounds: int, threads: int) -> NDArray[np.float64]:
    """Return milliseconds an update of each turn, without any, with all, ..., without any.

    By column: of the processor, by the clock, and of the threads that prepare patches.
    """
    own = ["data.test=[]", f"run.threads={threads}"]
    every = [f"augment.{name}={{}}" for name in DISTORTIONS]
    configs = [load_config(SAMPLE.with_suffix(".yaml"), given) for given in (own, [*own, *every])]
    network = trained_network(configs[0])
    total, marks = count * (2 * rounds + 3), []
    with ExitStack() as stack:
        model = stack.enter_context(training_model(configs[0], network, None))
        sources = [training_source(stack, it, network, World(), 0) for it in configs]
        source = Turns(sources, count)
        batches = loop_batches(source, training_losses(configs[0], network), 1, 0, model.samples)
        ready = stack.enter_context(closing(batches))
        for number, _ in enumerate(made_updates(model, islice(ready, total), lambda _: RATE)):
            if (number + AHEAD) % count == 0:
                marks.append((time.process_time(), time.monotonic(), source.spent))
    # The first two turns warm up.
    return 1e3 / count * np.diff(marks, axis=0)[1:]


def updates(count: int, rounds: int, threads: int) -> None:
    """Print what updates take with and without all distortions."""
    taken = turns(count, rounds, threads)
    none, every = taken[::2], taken[1::2]
    more = np.sort(every - (none[:-1] + none[1:]) / 2, axis=0)
    # The median lies beyond these 5 times in 100 or less, as if differences of neighbours, which share a turn, were
    # independent.
    low = int(binom.ppf(0.025, rounds, 0.5)) - 1
    print(f"{'':6}{'processor':>18} {'clock':>18} {'patches':>18}")
    for name, rows in (("none", none), ("all", every)):
        print(f"{name:6}" + " ".join(f"{it:18.2f}" for it in np.median(rows, axis=0)))
    ranges = zip(np.median(more, axis=0), more[low], more[rounds - 1 - low], strict=True)
    print(f"{'more':6}" + " ".join(f"{f'{m:.2f} ({a:.2f}, {b:.2f})':>18}" for m, a, b in ranges))


def main() -> None:
    """Print a line for each distortion, or what updates take."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", type=int, nargs=3, default=(24, 48, 48), metavar=("Z", "Y", "X"))
    parser.add_argument("--patches", type=int, default=40)
    parser.add_argument("--only", nargs="*", default=DISTORTIONS, choices=DISTORTIONS)
    parser.add_argument("--updates", type=int, metavar="N", help=f"at least {AHEAD}")
    parser.add_argument("--rounds", type=int, default=60, help=f"at least {FEWEST}")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    if given.updates is not None:
        # Shorter turns would begin with another one's, and of fewer rounds no two bound the median.
        if given.updates < AHEAD or given.rounds < FEWEST:
            parser.error(f"--updates takes {AHEAD} or more, --rounds {FEWEST} or more")
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
