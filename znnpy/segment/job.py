"""Runs one segmentation: reads a prediction as boundaries, foreground or affinities, finds objects, writes labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from znnpy.config.problems import suggestion
from znnpy.data.class_labels import FROM_0, Numbering
from znnpy.data.process_memory import available_memory, readable
from znnpy.data.volume import Triple, Triple64, Volume, place_attributes
from znnpy.data.writing.destination import Destination
from znnpy.data.writing.preflight import refuse_loss, refuse_place
from znnpy.errors import VolumeError, ZnnpyError
from znnpy.registry import resolved
from znnpy.segment.method import METHODS, Kind, Method
from znnpy.segment.probabilities import doubt, probabilities
from znnpy.segment.remarks import remark
from znnpy.segment.summary import Summary
from znnpy.segment.wanted import Wanted

Float32 = NDArray[np.float32]
DATASET = "volumes/labels/neuron_ids"
NEAREST: tuple[Triple, ...] = ((-1, 0, 0), (0, -1, 0), (0, 0, -1))
"""Offsets of the nearest neighbours before a voxel along z, y and x."""
_WORDS = {"boundary": "a boundary map", "foreground": "a foreground", "affinity": "affinities"}


@dataclass(frozen=True)
class Request:
    """The options of a segmentation: `threshold` None is the usual one, `method` too; empty `channels` are all.

    `numbering`: of classes, by methods that number these.
    """

    method: str | None = None
    kind: Kind | None = None
    threshold: float | None = None
    min_size: int = 0
    channels: tuple[int, ...] = ()
    numbering: Numbering = FROM_0


@dataclass(frozen=True)
class Meaning:
    """The meaning of the channels that are used, and the affinities' offsets (z, y, x)."""

    kind: Kind
    channels: tuple[int, ...]
    offsets: tuple[Triple, ...] = ()


@dataclass(frozen=True)
class Segmented:
    """Labels uint64 (z, y, x), numbered from 1, 0 unassigned; `sizes`: voxels of each object."""

    labels: NDArray[np.uint64]
    sizes: NDArray[np.int64]
    meaning: Meaning
    threshold: float
    method: str

    @property
    def assigned(self) -> float:
        """The fraction of voxels that belong to objects."""
        return float(self.sizes.sum() / self.labels.size)


def segment(volume: Volume, request: Request, memory: int | None = None) -> Segmented:
    """Return the objects of a prediction, in memory; the volume stays open and the caller's.

    Raises VolumeError when the estimated memory, with what the process takes already, exceeds `memory`
    bytes, or, if that is None, when the estimate exceeds what is available.
    """
    if request.method and (blockwise := method_of(request.method)).blocks is not None:
        raise VolumeError(
            f"{volume.name}: {blockwise.title or blockwise.name} is written block by block (znnpy segment --method "
            f"{blockwise.name}, znnpy.segment.by_blocks.write_by_blocks)"
        )
    found, method, threshold = settled(volume, request)
    _refuse_memory(volume, method, len(found.channels), memory)
    values = probabilities(volume, found.channels)
    doubt(volume, float(values.max()))
    labels, sizes = _renumbered(
        _labels(values, method, request, found, threshold, volume.resolution), request.min_size
    )
    remark(volume, method, Wanted(found.kind, threshold, (), request.min_size), Summary.of(sizes))
    return Segmented(labels, sizes, found, threshold, method.name)


def settled(volume: Volume, request: Request) -> tuple[Meaning, Method, float]:
    """Return what a prediction shows, and method and threshold, the usual ones where none is named.

    Raises VolumeError for a method that does not take such a prediction.
    """
    found = meaning(volume, request.kind, request.channels)
    method = method_of(request.method or usual_method(found.kind))
    if found.kind not in method.kinds:
        needed = " or ".join(_WORDS[kind] for kind in method.kinds)
        raise VolumeError(
            f"{volume.name} is a {found.kind} map; {method.title or method.name} needs {needed}"
        )
    usual = method.thresholds.get(found.kind, 0.5)
    return found, method, usual if request.threshold is None else request.threshold


def usual_method(kind: Kind) -> str:
    """Return the method that is taken where none is named: the first that takes such a prediction."""
    return next(method.name for method in METHODS.values() if kind in method.kinds)


def method_of(name: str) -> Method:
    """Return the method of that name; raise ZnnpyError with the nearest name where there is none."""
    if name not in METHODS:
        known = suggestion(name, [*METHODS])
        raise ZnnpyError(f"segmentation method {name!r} is unknown{known}")
    return METHODS[name]


def estimate(volume: Volume, method: str, channels: int) -> int:
    """Return the bytes that segmenting a volume takes at its peak."""
    entry = method_of(method)
    fixed, each = entry.voxel_bytes, entry.channel_bytes
    voxels = int(np.prod(volume.extent, dtype=np.int64))
    return int(voxels * (fixed + channels * (4 + each)))


def write_labels(
    destination: Destination, volume: Volume, found: Segmented, request: Request
) -> None:
    """Write labels in the format of the output's suffix, atomically, with `label_attributes`."""
    attributes = label_attributes(volume, found.method, found.threshold, request)
    destination.write(found.labels, attributes)


def label_attributes(
    volume: Volume, method: str, threshold: float, request: Request
) -> dict[str, Any]:
    """Return where labels of a prediction lie, and how they were made."""
    return {
        **place_attributes(volume),
        "prediction": volume.name,
        "method": method,
        "threshold": threshold,
        "min_size": request.min_size,
    }


def refuse_labels(destination: Destination, volume: Volume) -> None:
    """Raise VolumeError where no labels can be written, before anything is computed."""
    refuse_place(destination.path)
    destination.refuse_standing()
    refuse_loss(destination, [volume])


def _labels(
    values: Float32,
    method: Method,
    request: Request,
    found: Meaning,
    threshold: float,
    resolution: Triple64,
) -> NDArray[Any]:
    sizes = {"resolution": resolution} if method.by_size else {}
    labels: NDArray[Any] = resolved(method.find)(
        values, found.kind, threshold, found.offsets, request.min_size, **sizes
    )
    return labels


def _renumbered(
    labels: NDArray[Any], min_size: int
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return labels without small objects, numbered 1, 2, ... in their old order, and the sizes."""
    sizes = np.bincount(labels.reshape(-1))
    kept = sizes >= max(1, min_size)
    kept[0] = False
    numbers = np.where(kept, np.cumsum(kept), 0).astype(np.uint64)
    return numbers[labels], sizes[kept]


def _refuse_memory(volume: Volume, method: Method, channels: int, memory: int | None) -> None:
    needed = estimate(volume, method.name, channels)
    if memory is not None:
        needed += int(psutil.Process().memory_info().rss)
    free = available_memory() if memory is None else memory
    if needed > free:
        kind = "available" if memory is None else "allowed"
        raise VolumeError(
            f"{volume.name}: segmenting {volume.extent} voxels (z, y, x) by {method.name} takes about "
            f"{readable(needed)} of memory, but only {readable(free)} are {kind}; znnpy segment writes it "
            "block by block to a file .h5 or a folder .zarr"
        )


def refuse_channels(volume: Volume, channels: Sequence[int]) -> None:
    """Raise VolumeError for channels that a prediction does not have."""
    wrong = [c for c in channels if not 0 <= c < volume.channels]
    if wrong:
        raise VolumeError(
            f"{volume.name} has channels 0 to {volume.channels - 1}, but channel {wrong[0]} was "
            "asked for"
        )


def meaning(volume: Volume, kind: Kind | None, channels: Sequence[int]) -> Meaning:
    """Return what a prediction shows: as asked for, else affinities if the file names offsets, else boundaries.

    Raises VolumeError, saying what to ask for, when the channels do not fit.
    """
    refuse_channels(volume, channels)
    found: Kind = kind or ("affinity" if volume.neighbours else "boundary")
    used = tuple(channels) or tuple(range(volume.channels))
    if found == "affinity":
        return Meaning(found, used, _offsets(volume, used))
    if len(used) != 1:
        raise VolumeError(
            f"{volume.name} has {volume.channels} channels, but a {found} map is one; name it with "
            "--channel, or say --kind affinity, or, of classes, --method classes"
        )
    return Meaning(found, used)


def _offsets(volume: Volume, used: Sequence[int]) -> tuple[Triple, ...]:
    offsets = volume.neighbours
    if offsets is None and volume.channels == 3:
        offsets = NEAREST
    if offsets is None:
        raise VolumeError(
            f"{volume.name} does not say which neighbours its {volume.channels} channels stand for: "
            "it has no attribute offsets, and only three channels are taken for the nearest ones"
        )
    return tuple(offsets[channel] for channel in used)
