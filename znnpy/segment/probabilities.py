"""Reads predictions as probabilities, and doubts those that look like something else."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.data.volume import Array, Volume, slabs
from znnpy.errors import VolumeError

Float32 = NDArray[np.float32]
# Networks trained with a square loss leave [0, 1] a little; logits leave it by much.
BEYOND = 0.5


def probabilities(volume: Volume, channels: Sequence[int]) -> Float32:
    """Read channels of a prediction as float32 (C, z, y, x) from 0 to 1; integers are divided by their largest.

    Reads in slabs. Raises VolumeError for values that are not probabilities.
    """
    _, height, width = volume.extent
    values = np.empty((len(channels), *volume.extent), np.float32)
    for start, stop in slabs(volume):
        slab = volume.read((start, 0, 0), (stop, height, width))[list(channels)]
        values[:, start:stop] = scaled(slab, volume)
    volume.verify()
    return values


def scaled(slab: Array, volume: Volume) -> Any:
    """Return values of a prediction as probabilities; raise VolumeError for values that are none."""
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


def doubt(volume: Volume, most: float) -> None:
    """Warn where integers, at `most` so much of their largest, are far below: masks of 0 and 1, or bytes in 16 bits."""
    if volume.dtype.kind not in "ui":
        return
    largest = int(np.iinfo(volume.dtype).max)
    highest = round(most * largest)
    if highest == 1 or 0 < highest <= 255 < largest:
        warnings.warn(
            f"{volume.name} holds {volume.dtype} up to {highest}, and {largest} is the probability 1: all of them are "
            f"taken for nearly 0; write 0 to {largest}, floats from 0 to 1, or a mask as bool",
            stacklevel=3,
        )
