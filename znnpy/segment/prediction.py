"""Interprets a predicted volume: boundaries, foreground or affinities, read as probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.data.volume import Array, Triple, Volume, slabs
from znnpy.errors import VolumeError
from znnpy.segment.method import Kind

Float32 = NDArray[np.float32]
NEAREST: tuple[Triple, ...] = ((-1, 0, 0), (0, -1, 0), (0, 0, -1))
"""Offsets of the nearest neighbours before a voxel along z, y and x."""
# Networks trained with a square loss leave [0, 1] a little; logits leave it by much.
BEYOND = 0.5


@dataclass(frozen=True)
class Meaning:
    """The meaning of the channels that are used, and the affinities' offsets (z, y, x)."""

    kind: Kind
    channels: tuple[int, ...]
    offsets: tuple[Triple, ...] = ()


def meaning(volume: Volume, kind: Kind | None, channels: Sequence[int]) -> Meaning:
    """Return what a prediction shows: as asked for, else affinities if the file names offsets, else boundaries.

    Raises VolumeError, saying what to ask for, when the channels do not fit.
    """
    wrong = [c for c in channels if not 0 <= c < volume.channels]
    if wrong:
        raise VolumeError(
            f"{volume.name} has channels 0 to {volume.channels - 1}, but channel {wrong[0]} was "
            "asked for"
        )
    found: Kind = kind or ("affinity" if volume.neighbours else "boundary")
    used = tuple(channels) or tuple(range(volume.channels))
    if found == "affinity":
        return Meaning(found, used, _offsets(volume, used))
    if len(used) != 1:
        raise VolumeError(
            f"{volume.name} has {volume.channels} channels, but a {found} map is one; name it with "
            "--channel, or say --kind affinity"
        )
    return Meaning(found, used)


def probabilities(volume: Volume, channels: Sequence[int]) -> Float32:
    """Read channels of a prediction as float32 (C, z, y, x) from 0 to 1; integers are divided by their largest.

    Reads in slabs. Raises VolumeError for values that are not probabilities.
    """
    _, height, width = volume.extent
    values = np.empty((len(channels), *volume.extent), np.float32)
    for start, stop in slabs(volume):
        slab = volume.read((start, 0, 0), (stop, height, width))[list(channels)]
        values[:, start:stop] = _scaled(slab, volume)
    volume.verify()
    return values


def _scaled(slab: Array, volume: Volume) -> Any:
    if slab.dtype.kind in "ui":
        if slab.dtype.itemsize > 2:
            raise VolumeError(
                f"{volume.name} holds {slab.dtype}, as labels do; expected probabilities as floats, "
                "uint8 or uint16"
            )
        return slab.astype(np.float32) / np.float32(np.iinfo(slab.dtype).max)
    low, high = float(slab.min()), float(slab.max())
    if low < -BEYOND or high > 1 + BEYOND:
        raise VolumeError(
            f"{volume.name} holds values from {low:.4g} to {high:.4g}; expected probabilities from 0 "
            "to 1, as `znnpy predict` writes them without --logits"
        )
    return np.clip(slab, 0, 1)


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
