"""Turns arrays of small-image files into volumes, after checking that they fit into memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from znnpy.data.process_memory import available, available_memory, readable, take
from znnpy.data.safety_limits import COMPRESSION, SMALL, Trust
from znnpy.data.volume import Array, ArrayVolume, Volume
from znnpy.errors import VolumeError

SHARE = 0.5  # of the memory that is still available


def whole_volume(array: Array, name: str, *, labels: bool) -> Volume:
    """Return an array (z, y, x) or (c, z, y, x) as a volume; of `labels` also one value for each image, (z).

    Raises VolumeError for other axes.
    """
    if array.ndim == 1 and labels:
        return ArrayVolume(array[:, None, None], name)
    if array.ndim == 1:
        raise VolumeError(
            f"{name} holds {len(array)} single values, no images; are they the labels?"
        )
    if array.ndim not in (3, 4):
        raise VolumeError(
            f"{name} has {array.ndim} axes, shape {array.shape}; expected images (number, y, x), with "
            "an axis of channels where data.axes says, or one label for each image"
        )
    volume = ArrayVolume(array, name)
    volume.unnamed = array.ndim == 4
    return volume


def claim_size(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], stored: int, trust: Trust
) -> None:
    """Count memory for an array; VolumeError if `stored` bytes of a file cannot hold it, or memory does not suffice."""
    declared = math.prod(shape) * dtype.itemsize
    limit = max(SMALL, COMPRESSION * stored) if trust.max_bytes is None else trust.max_bytes
    if declared > limit:
        raise VolumeError(
            f"{name} declares {readable(declared)} of data, shape {shape}, in {readable(stored)} of the "
            f"file; at most {readable(limit)} are accepted"
        )
    free = available_memory()
    if declared > SHARE * free:
        raise VolumeError(
            f"{name} takes {readable(declared)} in memory, where such files are read whole, but only "
            f"{available(free)}, of which {SHARE:.0%} may be used; HDF5 and Zarr are read "
            "by region"
        )
    take(declared)
