"""Looks at data that a config is to be written for: size, voxels, what the labels hold, what this machine has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from os.path import relpath
from pathlib import Path
from typing import Any

import numpy as np

from znnpy.data.opening import open_volume
from znnpy.data.process_memory import available_memory
from znnpy.data.sampling.targets import BoundaryTarget
from znnpy.data.scene import Scene
from znnpy.data.values.sampled_range import looked_at
from znnpy.data.volume import UNSET, Volume
from znnpy.dataset_path import joined, split_source
from znnpy.errors import VolumeError
from znnpy.scheduler.core_count import available_cores
from znnpy.train.recipe_sections import Seen
from znnpy.train.recipes import OBJECTS, Recipe
from znnpy.volume_sets import expanded, is_set

_IMAGE, _LABELS = ("image", ""), ("labels", "")
CLASSES = 256  # numbers of classes at most: more are objects
LOOKED_AT = 64  # labels of a set, at most
ALIKE = 0.01  # by which voxel sizes may differ, relatively, that count as one
GAP = 32  # between two that occur: more are no numbers of classes


def of_machine() -> Seen:
    """Return what is known without data: cores and memory of this machine."""
    return Seen(cores=available_cores(), memory=available_memory())


def look_at(recipe: Recipe, image: str, labels: str) -> Seen:
    """Return what is found in an image and its labels, FILE or FILE:DATASET; a bounded part is read.

    Raises VolumeError where they cannot be read, are one and the same, do not fit together, or hold other labels than
    the recipe needs.
    """
    with open_volume(image) as raw, open_volume(labels, role="labels") as truth:
        if truth.name == raw.name:
            raise VolumeError(
                f"{raw.name} is the image itself, and no other was found in that file; name its labels: "
                "--labels FILE[:DATASET]"
            )
        each = truth.extent[1:] == (1, 1) != raw.extent[1:]
        if recipe.name == "classification" and not each:
            raise VolumeError(
                f"{truth.name} holds {truth.extent} numbers (z, y, x); --for classification needs one for each image, "
                f"{raw.extent[0]} in all"
            )
        if each and recipe.name != "classification":
            raise VolumeError(
                f"{truth.name} holds a number for each image; --for {recipe.name} needs {recipe.labels}, voxel by "
                "voxel; where these are classes of images, take --for classification"
            )
        if each and truth.extent[0] != raw.extent[0]:
            raise VolumeError(
                f"{truth.name} holds {truth.extent[0]} numbers, and {raw.name} {raw.extent[0]} images; "
                "--for classification needs one for each image"
            )
        if not each:
            Scene({"": raw}, {"": truth})
        known = replace(
            of_machine(),
            image=raw.name,
            labels=truth.name,
            extent=raw.extent,
            resolution=raw.resolution,
            channels=raw.channels,
            greys=_greys(raw),
        )
        return _with_labels(known, recipe, truth)


def look_at_set(recipe: Recipe, image: str, labels: str) -> Seen:
    """Return what is found in a pattern or folder of images and that of their labels: of the first, and all sizes.

    Raises VolumeError as `look_at`, and where images and labels do not go together.
    """
    sources = {_IMAGE: split_source(image), _LABELS: split_source(labels)}
    pairs = [
        {role: joined(path, sources[role][1] or "") for role, path in found.items()}
        for found in expanded({role: path for role, (path, _) in sources.items()})
    ]
    if len(pairs) == 1 and not is_set(sources[_IMAGE][0]):
        return look_at(recipe, image, labels)
    seen = look_at(recipe, pairs[0][_IMAGE], pairs[0][_LABELS])
    sizes, voxels = [], []
    for pair in pairs:
        with open_volume(pair[_IMAGE]) as volume:
            sizes.append(volume.extent)
            voxels.append(volume.resolution)
    found = replace(seen, image=image, labels=labels, several=True)
    if recipe.labels != OBJECTS:
        found = replace(found, **_classes_of(recipe, [pair[_LABELS] for pair in pairs]))
    if UNSET in voxels or np.allclose(voxels, voxels[0], rtol=ALIKE, atol=0):
        return replace(found, extent=_least(sizes))
    deep, tall, broad = np.median(voxels, axis=0).tolist()
    middle = (deep, tall, broad)
    # Of which only some recipes make use (`prepare`).
    resampled = np.round(np.array(sizes) * np.array(voxels) / middle).astype(int)
    return replace(
        found, extent=_least([*sizes, *resampled.tolist()]), resolution=middle, spacing=middle
    )


def _least(sizes: Sequence[Sequence[int]]) -> tuple[int, int, int]:
    z, y, x = (max(1, min(along)) for along in zip(*sizes, strict=True))
    return z, y, x


def _classes_of(recipe: Recipe, names: Sequence[str]) -> dict[str, Any]:
    """Return `classes` and `shares` of the labels of several volumes, of evenly spaced ones where they are many."""
    counts: dict[int, int] = {}
    for name in names[:: -(-len(names) // LOOKED_AT)]:
        with open_volume(name, role="labels") as labels:
            for number, count in _numbers_of_classes(recipe, labels).items():
                counts[number] = counts.get(number, 0) + count
    _refuse_gaps(recipe, f"{names[0]} and others", counts)
    return _classes(counts)


def _greys(image: Volume) -> tuple[tuple[float, float], ...]:
    """Return mean and deviation of each channel of bytes; none of other types, whose scale differs by file."""
    if image.dtype != np.uint8:
        return ()
    voxels, sums, squares = 0, np.zeros(image.channels), np.zeros(image.channels)
    for lower, upper in looked_at(image):
        piece = image.read(lower, upper).astype(np.float64)
        voxels += piece[0].size
        sums += piece.sum((1, 2, 3))
        squares += (piece**2).sum((1, 2, 3))
    mean = sums / voxels
    deviation = np.sqrt(np.maximum(squares / voxels - mean**2, 0))
    return tuple(zip(mean.tolist(), deviation.tolist(), strict=True))


def _with_labels(known: Seen, recipe: Recipe, labels: Volume) -> Seen:
    kinds = "uib" if recipe.labels == OBJECTS else "uibf"
    if labels.channels != 1 or labels.dtype.kind not in kinds:
        raise VolumeError(
            f"{labels.name} holds {labels.channels} channel(s) of {labels.dtype}; --for {recipe.name} needs "
            f"{recipe.labels}"
        )
    if recipe.labels == OBJECTS:
        counts = _counts(labels)
        if len(counts) < 3:
            raise VolumeError(
                f"{labels.name} holds the numbers {sorted(counts)}; --for {recipe.name} needs {OBJECTS}, a number for "
                "each; where these are classes, take --for semantic"
            )
        return replace(known, shares={"boundary": _boundaries(labels)})
    return replace(known, **_classes(_numbers_of_classes(recipe, labels)))


def _numbers_of_classes(recipe: Recipe, labels: Volume) -> dict[int, int]:
    """Return how many voxels have each number of a class; VolumeError for what can be none."""
    counts = _counts(labels)
    lowest, highest = min(counts), max(counts)
    if lowest < 0 or highest >= CLASSES:
        raise VolumeError(
            f"{labels.name} holds numbers from {lowest} to {highest}; --for {recipe.name} needs {recipe.labels} from 0 "
            f"to {CLASSES - 1} at most; where these are objects, take --for membranes"
        )
    _refuse_gaps(recipe, labels.name, counts)
    return counts


def _classes(counts: dict[int, int]) -> dict[str, Any]:
    voxels = sum(counts.values())
    shares = {f"class {n}": count / voxels for n, count in sorted(counts.items())}
    return {"classes": max(2, max(counts) + 1), "shares": shares if len(shares) <= 8 else {}}


def _refuse_gaps(recipe: Recipe, name: str, counts: Mapping[int, int]) -> None:
    """Raise VolumeError for numbers that hardly are those of classes, such as 1, 2 and 255."""
    # 0 and one other number are a mask (`Seen.masked`).
    if recipe.name == "semantic" and len(counts) <= 2 and min(counts) == 0:
        return
    for one, other in pairwise(sorted(counts)):
        if other - one > GAP:
            raise VolumeError(
                f"{name} holds {one} and {other}, and no number between; classes are numbered 0, 1, 2, ... "
                "Number them so, or write a config without --for, in which a number of voxels that do not count takes "
                f"data.target: {{kind: labels, ignore: {other}}}"
            )


def _counts(labels: Volume) -> dict[int, int]:
    """Return how many voxels that are looked at have each number."""
    counts: dict[int, int] = {}
    for lower, upper in looked_at(labels):
        numbers, found = np.unique(labels.read(lower, upper), return_counts=True)
        whole = np.isfinite(numbers) & (numbers == np.round(numbers))
        if (parts := numbers[~whole]).size:
            raise VolumeError(
                f"{labels.name} holds values of {labels.dtype} such as {parts[0]:g}; expected numbers of classes"
            )
        for number, count in zip(numbers.tolist(), found.tolist(), strict=True):
            counts[int(number)] = counts.get(int(number), 0) + count
    return counts


def _boundaries(labels: Volume) -> float:
    """Return the share of boundary, as `target: {kind: boundary, thickness: 1}` makes it, of what is looked at."""
    boundary = counted = 0.0
    for lower, upper in looked_at(labels):
        ids = labels.read(lower, upper)
        target, weight = BoundaryTarget(1).compute(ids, np.ones(ids.shape[1:], np.bool_))
        boundary += float((target * weight).sum())
        counted += float(weight.sum())
    return boundary / max(1.0, counted)


def named_from(folder: Path, source: str) -> str:
    """Return a source, relative to the current folder, as a config in `folder` names it; an absolute one as it is."""
    path, dataset = split_source(source)
    return joined(path if path.is_absolute() else relpath(path, folder), dataset or "")
