"""Reads labels with masks: values, and where they are known (inside the volume and not masked out)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from znnpy.data.sampling.position_index import plus
from znnpy.data.volume import Array, Triple, Volume, clipped

Bool = NDArray[np.bool_]


def read_padded(
    volume: Volume, lower: Triple, upper: Triple, *, finite: bool = True
) -> tuple[Array, Bool]:
    """Read a region that may leave the volume: values (C, z, y, x), 0 outside, and where it is inside (z, y, x).

    Both arrays are new and belong to the caller. `finite` as in `Volume.read`.
    """
    sizes = tuple(b - a for a, b in zip(lower, upper, strict=True))
    values = np.zeros((volume.channels, *sizes), volume.dtype)
    inside = np.zeros(sizes, np.bool_)
    start = clipped(lower, volume.extent)
    stop = clipped(upper, volume.extent)
    if all(a < b for a, b in zip(start, stop, strict=True)):
        z, y, x = (slice(a - o, b - o) for a, b, o in zip(start, stop, lower, strict=True))
        values[:, z, y, x] = volume.read(start, stop, finite=finite)
        inside[z, y, x] = True
    return values, inside


def read_labelled(
    labels: Volume, mask: Volume | None, lower: Triple, upper: Triple, shift: Triple = (0, 0, 0)
) -> tuple[Array, Bool]:
    """Read labels (C, z, y, x), and which voxels (z, y, x) are inside the volume with a mask that is not 0.

    `lower` and `upper` count in the labels' voxels and may leave the volume; voxel v of the labels
    is voxel v + shift of the mask. A mask of several channels must be set in all of them. Labels may
    be NaN or infinite, where they are known as well.
    """
    values, known = read_padded(labels, lower, upper, finite=False)
    if mask is not None:
        inner, outer = plus(lower, shift), plus(upper, shift)
        known &= np.all(read_padded(mask, inner, outer)[0] != 0, axis=0)
    return values, known
