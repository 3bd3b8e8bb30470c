"""The window that `normalize: ct` stands for: numbers of the labelled voxels of all training volumes, kept by a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from math import sqrt
from typing import Any

import numpy as np

from znnpy.config import load_config
from znnpy.config.models import Config, ImageTarget, LabelsTarget
from znnpy.config.normalize_section import ClipNormalize, CtNormalize
from znnpy.data.config_volumes import open_scene
from znnpy.data.process_memory import kept_no_longer
from znnpy.data.sampling.label_checks import read_labelled, read_padded
from znnpy.data.sampling.patch_positions import mask_shift
from znnpy.data.sampling.position_index import minus, plus
from znnpy.data.scene import Scene
from znnpy.data.values.moments import Tally, pieces
from znnpy.data.values.outliers import usable
from znnpy.data.values.quantiles import quantiles
from znnpy.data.volume import Array
from znnpy.errors import ConfigError, VolumeError
from znnpy.network import Network, trained_network
from znnpy.train.progress import Reporter
from znnpy.train.run_directory import CONFIG, RunDirectory

WINDOW = (0.005, 0.995)
"""Shares of the labelled voxels below the window's ends, as nnU-Net has them."""


def with_window(config: Config, run: RunDirectory, reporter: Reporter) -> Config:
    """Return the config with the numbers of `normalize: ct`: those of the run, or of the labelled voxels.

    Reads the training volumes several times, piece by piece. Raises ConfigError where they have no such numbers, and
    VolumeError as opening them does.
    """
    if not isinstance(config.data.normalize, CtNormalize):
        return config
    kept = load_config(run / CONFIG).data.normalize if run.started else None
    if isinstance(kept, ClipNormalize):
        return _with(config, kept)
    found = _window(config, trained_network(config))
    numbers = "; ".join(
        f"{key} {_listed(value)}" for key, value in found.model_dump().items() if key != "kind"
    )
    reporter.note(f"data.normalize: ct is clip, by labelled voxels: {numbers}; the run keeps it")
    return _with(config, found)


def _with(config: Config, normalize: ClipNormalize) -> Config:
    data = config.data.model_copy(update={"normalize": normalize})
    return config.model_copy(update={"data": data})


def _listed(numbers: tuple[float, ...]) -> str:
    return ", ".join(f"{number:.6g}" for number in numbers)


def _window(config: Config, network: Network) -> ClipNormalize:
    place = config.place("data", "normalize")
    if isinstance(config.data.target, ImageTarget):
        raise ConfigError(
            f"{place}: ct takes labelled voxels, and target image has none; take clip"
        )
    if len(network.inputs) > 1:
        raise ConfigError(
            f"{place}: ct has one window, and the network has several inputs; take clip"
        )
    data = config.data.model_copy(update={"in_memory": False})
    with ExitStack() as stack:
        stack.enter_context(kept_no_longer())
        scenes = []
        for section in data.train:
            scenes.append(open_scene(section, data, network))
            stack.callback(scenes[-1].close)
        found = _of(scenes, config)
        for scene in scenes:
            scene.verify()
    return found


def _of(scenes: list[Scene], config: Config) -> ClipNormalize:
    target = config.data.target
    ignore = target.ignore if isinstance(target, LabelsTarget) else None
    dtype = np.result_type(*(scene.reference.dtype for scene in scenes))
    channels = scenes[0].reference.channels

    def parts() -> Iterator[list[Array]]:
        for scene in scenes:
            for values in _labelled(scene, ignore):
                yield [_counted(channel, dtype) for channel in values]

    tallies = [Tally() for _ in range(channels)]
    for part in parts():
        for tally, values in zip(tallies, part, strict=True):
            tally.add(values)
    _refuse(config, tallies)
    low, high = zip(*quantiles(parts, channels, dtype, WINDOW), strict=True)
    numbers: dict[str, Any] = {
        "low": low,
        "high": high,
        "mean": [tally.mean for tally in tallies],
        "deviation": [sqrt(tally.variance) for tally in tallies],
    }
    return ClipNormalize.model_validate({"kind": "clip", **numbers})


def _refuse(config: Config, tallies: list[Tally]) -> None:
    place = config.place("data", "normalize")
    if not tallies[0].count:
        raise VolumeError(
            f"{place}: ct takes labelled voxels, and data.train has none: all labels are 0"
        )
    for number, tally in enumerate(tallies):
        if tally.variance == 0:
            raise VolumeError(
                f"{place}: ct takes a window of the values of labelled voxels, but in channel {number} all are "
                f"{tally.mean:g}; take clip"
            )


def _labelled(scene: Scene, ignore: int | None) -> Iterator[Array]:
    """Yield values (C, n) of an image where labels are not 0 and count."""
    (image,) = scene.images.values()
    node, labels = next(iter(scene.labels.items()))
    there = minus(scene.corner(labels), scene.corner(image))
    for lower, upper in pieces(labels):
        known = _known(scene, node, ignore, lower, upper)
        values, inside = read_padded(image, plus(lower, there), plus(upper, there), finite=False)
        yield values[:, known & inside]


def _known(
    scene: Scene,
    node: str,
    ignore: int | None,
    lower: tuple[int, int, int],
    upper: tuple[int, int, int],
) -> Array:
    labels, mask = scene.labels[node], scene.masks.get(node)
    values, known = read_labelled(labels, mask, lower, upper, mask_shift(scene, node))
    counted = values != 0 if ignore is None else (values != 0) & (values != ignore)
    found: Array = known & counted.any(axis=0)
    return found


def _counted(values: Array, dtype: np.dtype[Any]) -> Array:
    given = values.astype(dtype, copy=False)
    return given[usable(given)] if given.dtype.kind == "f" else given
