"""Turns arrays of small-image files into volumes."""

from __future__ import annotations

from znnpy.data.volume import Array, ArrayVolume, Volume
from znnpy.errors import VolumeError


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
