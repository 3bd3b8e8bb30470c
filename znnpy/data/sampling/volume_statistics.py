"""Statistics of whole volumes before sampling: normalisation and class counts, with the work divided among ranks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from znnpy.data.sampling.class_weights import ClassCounts, count_volume
from znnpy.data.sampling.label_checks import check_labels
from znnpy.data.sampling.patch_positions import mask_shift
from znnpy.data.sampling.targets import Target
from znnpy.data.scene import Scene
from znnpy.data.values.normalization import Mode, normalisation, unexamined
from znnpy.data.values.own_statistics import Own
from znnpy.data.values.sampled_range import glance
from znnpy.data.values.scaling import Normalisation
from znnpy.data.volume import Triple, Volume
from znnpy.distributed.serialization import Value
from znnpy.distributed.work_division import Job, divided
from znnpy.distributed.world import World

Place = tuple[str, int, str]
"""The kind of statistic, the number of the scene, and the node."""


def examined(
    scenes: Sequence[Scene],
    targets: Mapping[str, Target],
    mode: Mode,
    world: World,
    *,
    replace: bool,
    counting: bool,
) -> tuple[list[dict[str, Normalisation]], list[dict[str, ClassCounts]]]:
    """Return the normalisation of each scene's images by input node, and, if `counting`, class counts by output.

    Shape descriptors have no classes. Each volume is read by one rank, with the same results for any number of ranks.
    Errors as in `normalisation` and `check_labels`.
    """
    classes = {node: it for node, it in targets.items() if counting and it.balanced}
    looks = {
        **_at_images(scenes, partial(_numbers, mode, replace)),
        **_at_labels("labels", scenes, targets, check_labels),
        **_at_labels("classes", scenes, classes, _classes),
    }
    found = divided(world, {_name(place, *look): look[1] for place, look in looks.items()})
    at = dict(zip(looks, found.values(), strict=True))
    norms = [
        {node: _normalisation(at["image", number, node], mode, replace) for node in scene.images}
        for number, scene in enumerate(scenes)
    ]
    counts = [
        {node: ClassCounts(*map(np.array, at["classes", number, node])) for node in classes}
        for number in range(len(scenes))
    ]
    return norms, counts


def as_they_are(
    scenes: Sequence[Scene], *, replace: bool
) -> tuple[list[dict[str, Normalisation]], list[dict[str, ClassCounts]]]:
    """Return the same without reading any volume: images stay as they are, and no classes are counted."""
    norms = [
        {node: unexamined(volume, replace=replace) for node, volume in scene.images.items()}
        for scene in scenes
    ]
    return norms, [{} for _ in scenes]


def _at_images(
    scenes: Sequence[Scene], look: Callable[[Volume], Value]
) -> dict[Place, tuple[Volume, Job]]:
    return {
        ("image", number, node): (volume, partial(look, volume))
        for number, scene in enumerate(scenes)
        for node, volume in scene.images.items()
    }


def _at_labels(
    what: str,
    scenes: Sequence[Scene],
    targets: Mapping[str, Target],
    look: Callable[[Target, Volume, Volume | None, Triple], Value],
) -> dict[Place, tuple[Volume, Job]]:
    return {
        (what, number, node): (
            scene.labels[node],
            partial(
                look, target, scene.labels[node], scene.masks.get(node), mask_shift(scene, node)
            ),
        )
        for number, scene in enumerate(scenes)
        for node, target in targets.items()
    }


def _name(place: Place, volume: Volume, _: Job) -> str:
    what, number, node = place
    return f"{volume.name} {volume.shape} {volume.dtype} ({what} {number} of {node})"


def _numbers(mode: Mode, replace: bool, volume: Volume) -> Value:
    found = normalisation(volume, mode, replace=replace)
    _warn_of_constant(volume)
    return [it.tolist() for it in (found.shift, found.scale, *(found.limits or ()))]


def _warn_of_constant(volume: Volume) -> None:
    """Warn of a channel whose values are all the same, of which networks learn nothing; large ones by a part.

    Also where they are the same once they are float32, as networks have them.
    """
    seen = glance(volume, finite=False)
    for channel, (low, high) in enumerate(seen.ranges):
        if np.float32(low) == np.float32(high):
            each = f" of channel {channel}" if volume.channels > 1 else ""
            part = "" if seen.whole else " that were looked at"
            why = (
                ", as of alpha that is opaque everywhere: networks learn nothing of it"
                if _is_opaque(volume, channel, high)
                else ": there is nothing to see in it; is it the image that was meant?"
            )
            found = f"{low:g}{why}"
            if low != high:
                found = (
                    f"from {low!s} to {high!s}, one number in float32: subtract the least from all"
                )
            warnings.warn(f"{volume.name}: all values{each}{part} are {found}", stacklevel=3)
            return


def _is_opaque(volume: Volume, channel: int, value: float) -> bool:
    """Return whether a channel's one value is that of alpha where nothing shows through: pictures keep it last."""
    most = np.iinfo(volume.dtype).max if volume.dtype.kind in "ui" else 1
    return channel == volume.channels - 1 in (1, 3) and value == most


def _normalisation(numbers: list[Any], mode: Mode, replace: bool) -> Normalisation:
    shift, scale, *ends = map(np.array, numbers)
    limits = (ends[0], ends[1]) if ends else None
    return Normalisation(shift, scale, replace, limits, isinstance(mode, Own) and mode.nonzero)


def _classes(
    target: Target, labels: Volume, mask: Volume | None, shift: Triple
) -> list[list[float]]:
    found = count_volume(labels, mask, target, shift)
    return [found.positive.tolist(), found.negative.tolist()]
