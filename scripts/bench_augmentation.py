"""Milliseconds of a core that a training patch takes, by distortion, on the sample of FIB-SEM.

    python scripts/bench_augmentation.py [--shape 24 48 48] [--patches 40] [--only rotate elastic]

Counted is the time of the thread that prepares patches, so that others at work matter less. Each distortion is made of
every patch, in the last line all are as often as by their defaults.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from znnpy.config.augment_section import DISTORTIONS, AugmentSection
from znnpy.data.opening import open_volume
from znnpy.data.sampling.augmentation import Augmentation
from znnpy.data.sampling.sample import InputPatch, OutputPatch
from znnpy.data.sampling.sampler import Sampler
from znnpy.data.sampling.targets import BoundaryTarget
from znnpy.data.scene import Scene
from znnpy.data.volume import ArrayVolume

SAMPLE = Path(__file__).parents[1] / "volumes" / "fibsem"
ALWAYS = {"probability": 1.0}


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


def main() -> None:
    """Print a line for each distortion."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", type=int, nargs=3, default=(24, 48, 48), metavar=("Z", "Y", "X"))
    parser.add_argument("--patches", type=int, default=40)
    parser.add_argument("--only", nargs="*", default=DISTORTIONS, choices=DISTORTIONS)
    given = parser.parse_args()
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
