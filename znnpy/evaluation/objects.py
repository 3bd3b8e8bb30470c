"""Scores objects, or classes, in one volume against those in another: `znnpy score`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.data.process_memory import available_memory, readable
from znnpy.data.scene import Scene
from znnpy.data.volume import UNSET, Triple, Volume
from znnpy.errors import VolumeError
from znnpy.metrics.agreement import (
    adapted_rand_of,
    contingency,
    object_precision,
    splits_and_merges,
    variation_of,
)
from znnpy.metrics.overlap import dice, hd95, iou

Array = NDArray[Any]
Row = dict[str, float | None]
VOXEL = 100  # bytes a voxel at the peak: both arrays, their numbers anew, and the table of pairs
TITLES = {
    "adapted_rand_error": "adapted Rand error",
    "rand_precision": "  precision (low: merged)",
    "rand_recall": "  recall (low: split)",
    "voi": "VOI (bits)",
    "voi_split": "  split",
    "voi_merge": "  merge",
    "cremi_score": "CREMI score",
    "object_precision": "average precision over IoU",
    "splits_per_object": "splits per object",
    "merges_per_object": "merges per object",
    "voxels": "voxels",
    "splits": "splits",
    "merges": "merges",
    "best_iou": "IoU of the best",
    "dice": "Dice",
    "iou": "IoU",
    "hd95": "HD95",
}
DISTANCES = ("hd95",)
CLASSES = 256  # at most: more are numbers of objects


@dataclass(frozen=True)
class Pair:
    """What is scored and the truth (z, y, x) where both lie; truth 0 where it is unknown or masked."""

    found: Array
    truth: Array
    known: NDArray[np.bool_]
    size: tuple[float, float, float]
    name: str = "the truth"

    @property
    def labelled(self) -> Array:
        """The truth where it counts, else 0; raises VolumeError where that is nowhere."""
        found: Array = np.where(self.known, self.truth, 0)
        if not found.any():
            raise VolumeError(
                f"{self.name} has no label but 0, which is unknown, where both volumes lie and the mask counts: "
                "nothing to score against"
            )
        return found


def unit_of(size: tuple[float, float, float]) -> str:
    """Return the unit of distances, of voxels whose size no file says these."""
    return "voxels" if size == UNSET else "nm"


def score_objects(pair: Pair) -> Row:
    """Return the scores of all objects: adapted Rand, VOI in bits, CREMI score, average precision over IoU."""
    truth = pair.labelled
    shared = contingency(truth, pair.found)
    rand, voi = adapted_rand_of(shared), variation_of(shared)
    splits, merges = splits_and_merges(shared)
    return {
        "adapted_rand_error": rand.error,
        "rand_precision": rand.precision,
        "rand_recall": rand.recall,
        "voi": voi.total,
        "voi_split": voi.split,
        "voi_merge": voi.merge,
        "cremi_score": float(np.sqrt(voi.total * max(0.0, rand.error))),
        "object_precision": object_precision(shared),
        "splits_per_object": float(splits.mean()),
        "merges_per_object": float(merges.mean()),
    }


def score_sections(pair: Pair) -> Iterator[tuple[int, Row]]:
    """Yield the number of each section (z) with labels, and the scores of the objects within it."""
    for z in range(len(pair.found)):
        part = slice(z, z + 1)
        one = replace(pair, found=pair.found[part], truth=pair.truth[part], known=pair.known[part])
        if (one.truth[one.known] != 0).any():
            yield z, score_objects(one)


def score_each(pair: Pair) -> Iterator[tuple[int, Row]]:
    """Yield the number of each object of the truth, largest first: voxels, splits, merges, best IoU."""
    truth = pair.labelled
    numbers, voxels = np.unique(truth[truth != 0], return_counts=True)
    shared = contingency(truth, pair.found)
    splits, merges = splits_and_merges(shared)
    table, pairs = shared.voxels, shared.voxels.tocoo()
    union = voxels[pairs.row] + table.sum(axis=0)[pairs.col] - pairs.data
    best, assigned = np.zeros(len(numbers)), pairs.col < shared.objects
    np.maximum.at(best, pairs.row[assigned], (pairs.data / union)[assigned])
    for at in np.argsort(-voxels, kind="stable"):
        yield (
            int(numbers[at]),
            {
                "voxels": float(voxels[at]),
                "splits": float(splits[at]),
                "merges": float(merges[at]),
                "best_iou": float(best[at]),
            },
        )


def score_classes(pair: Pair) -> Iterator[tuple[int, Row]]:
    """Yield the number of each class, and its Dice, IoU and HD95 (nanometres, of voxels without a size voxels).

    Raises VolumeError for more numbers than classes have.
    """
    numbers = np.union1d(pair.found[pair.known], pair.truth[pair.known])
    if len(numbers) > CLASSES:
        raise VolumeError(f"{len(numbers):,} different numbers are objects, not classes")
    for number in numbers.tolist():
        found, wanted = (pair.known & (it == number) for it in (pair.found, pair.truth))
        yield (
            int(number),
            {
                "dice": dice(found, wanted),
                "iou": iou(found, wanted),
                "hd95": hd95(found, wanted, pair.size),
            },
        )


def read_pair(found: Volume, truth: Volume, mask: Volume | None = None) -> Pair:
    """Read what is scored and the truth where both lie, placed by their offsets; `mask`: voxels that count.

    The volumes stay open and the caller's. Raises VolumeError where they are no labels, do not lie on one grid, have
    no voxel in common, or do not fit into memory.
    """
    for volume in (found, truth):
        if volume.channels != 1 or volume.dtype.kind not in "uibf":
            raise VolumeError(
                f"{volume.name} holds {volume.channels} channel(s) of {volume.dtype}; expected numbers of objects or "
                "classes, one a voxel"
            )
    masks = {} if mask is None else {"": mask}
    # Objects say where they lie, as predictions do; labels that do not begin where the image does.
    scene = Scene({"": truth}, {"": found}, masks)
    corners = [scene.corner(volume) for volume in scene.volumes()]
    lower = _triple(max(axis) for axis in zip(*corners, strict=True))
    ends = [np.add(corner, it.extent) for corner, it in zip(corners, scene.volumes(), strict=True)]
    upper = _triple(int(min(axis)) for axis in zip(*ends, strict=True))
    if any(a >= b for a, b in zip(lower, upper, strict=True)):
        raise VolumeError(
            f"{found.name} and {truth.name} have no voxel in common, by their offsets"
        )
    _refuse_memory(found, lower, upper)
    arrays = [
        volume.read(_triple(np.subtract(lower, corner)), _triple(np.subtract(upper, corner)))[0]
        for volume, corner in zip(scene.volumes(), corners, strict=True)
    ]
    known = np.ones(arrays[0].shape, np.bool_) if mask is None else arrays[2] != 0
    scene.verify()
    # Labels may leave it to the image to say how large a voxel is.
    size = found.resolution if truth.resolution == UNSET else truth.resolution
    arrays[:2] = [_whole(a, it) for a, it in zip(arrays, (truth, found), strict=False)]
    for volume, numbers in ((truth, arrays[0]), (found, arrays[1])):
        if numbers.dtype.kind == "i" and numbers.min() < 0:
            raise VolumeError(
                f"{volume.name} holds negative numbers, down to {numbers.min()}; expected those of objects or classes "
                "from 0 on, 0 where they are unknown"
            )
    return Pair(arrays[1], arrays[0], known, size, truth.name)


def _whole(numbers: Array, volume: Volume) -> Array:
    """Return numbers as integers, as which some programs write floats; VolumeError where they are no whole ones."""
    if numbers.dtype.kind != "f":
        return numbers
    with np.errstate(invalid="ignore"):  # what is no number is refused below
        found = numbers.astype(np.int64)
    if (parts := numbers[numbers != found]).size:
        raise VolumeError(
            f"{volume.name} holds values of {volume.dtype} such as {parts[0]:g}; expected numbers of objects or "
            "classes, one a voxel"
        )
    return found


def beyond_labels(found: Volume, truth: Volume) -> str | None:
    """Return a remark on labels that do not cover what is scored and do not say where they lie; None for others."""
    if truth.placed is not None or all(
        a <= b for a, b in zip(found.extent, truth.extent, strict=True)
    ):
        return None
    return (
        f"{truth.name} has {truth.extent} voxels (z, y, x) and does not say where they lie, {found.name} has "
        f"{found.extent}: labels are taken to begin at 0, 0, 0, and what goes beyond does not count"
    )


def _triple(values: Any) -> Triple:
    z, y, x = (int(value) for value in values)
    return (z, y, x)


def _refuse_memory(volume: Volume, lower: Triple, upper: Triple) -> None:
    needed = VOXEL * int(np.prod(np.subtract(upper, lower), dtype=np.int64))
    if needed > available_memory():
        raise VolumeError(
            f"{volume.name}: scoring takes about {readable(needed)} of memory, of which "
            f"{readable(available_memory())} are available; cut both volumes into parts"
        )
