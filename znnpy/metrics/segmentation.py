"""Computes connected components of boundary maps and affinities: threshold, cc3d, growing into what is left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cc3d
import numpy as np
from numpy.typing import NDArray

from znnpy.errors import ShapeError

Array = NDArray[Any]
Labels = NDArray[np.uint32]
Triple = tuple[int, int, int]
NEAREST: tuple[Triple, ...] = ((-1, 0, 0), (0, -1, 0), (0, 0, -1))
"""Offsets of the nearest neighbours before a voxel along z, y and x."""


def from_boundary(
    prediction: Array, threshold: float = 0.5, *, min_size: int = 0, grow: float = 0
) -> Labels:
    """Return objects where the boundary map is below `threshold`, joined over faces.

    `prediction`: (z, y, x) or (1, z, y, x), 1 on boundaries. Objects of fewer than `min_size`
    voxels are dropped; the rest grow by up to `grow` voxels into unassigned ones, nearest first.
    Returns (z, y, x), 0 unassigned.
    """
    boundary = prediction[0] if prediction.ndim == 4 and len(prediction) == 1 else prediction
    if boundary.ndim != 3:
        raise ShapeError(f"a boundary map is (z, y, x) or (1, z, y, x), got {prediction.shape}")
    components = cc3d.connected_components(boundary < threshold, connectivity=6)
    return finished(components, min_size, grow)


def from_affinity(
    prediction: Array,
    threshold: float = 0.5,
    *,
    offsets: Sequence[Triple] = NEAREST,
    min_size: int = 2,
    grow: float = 0,
) -> Labels:
    """Return objects of voxels joined by affinities above `threshold` to their nearest neighbours.

    `prediction`: (K, z, y, x), channel k the affinity of voxel v and voxel v + offsets[k]; one step
    along each axis must be among the offsets, longer ones are not used. A voxel joined to none is
    an object of size 1, which `min_size` 2 leaves unassigned. Otherwise as in `from_boundary`.
    """
    if prediction.ndim != 4 or len(prediction) != len(offsets):
        raise ShapeError(f"{len(offsets)} offsets need (K, z, y, x), got {prediction.shape}")
    graph = np.zeros(prediction.shape[1:], np.uint8)
    for axis in range(3):
        _join(graph, axis, prediction, threshold, offsets)
    return finished(cc3d.color_connectivity_graph(graph, connectivity=6), min_size, grow)


def single_step(offsets: Sequence[Triple], axis: int) -> Triple | None:
    """Return the offset to a neighbour along an axis, the backward one if there are both; None if there is none."""
    for sign in (-1, 1):
        z, y, x = (sign if a == axis else 0 for a in range(3))
        if (z, y, x) in offsets:
            return z, y, x
    return None


def _join(
    graph: NDArray[np.uint8],
    axis: int,
    prediction: Array,
    threshold: float,
    offsets: Sequence[Triple],
) -> None:
    """Set cc3d's bits of one axis: 1 << 2 * axis for the next voxel, the one above for the last."""
    step = single_step(offsets, axis)
    if step is None:
        raise ShapeError(
            f"the offsets {list(offsets)} hold no single step along {'zyx'[axis]}: connected components need the "
            "affinity to a next neighbour along each axis"
        )
    joined = np.moveaxis(prediction[list(offsets).index(step)] > threshold, axis, 0)
    # The affinity of a pair stands at its upper voxel for a step of -1, at its lower one for +1.
    joined = joined[1:] if step[axis] < 0 else joined[:-1]
    bits = np.moveaxis(graph, axis, 0)
    bits[1:] |= joined * np.uint8(2 << 2 * axis)
    bits[:-1] |= joined * np.uint8(1 << 2 * axis)


def finished(components: Array, min_size: int, grow: float) -> Labels:
    """Return labels (z, y, x) without objects of fewer than `min_size` voxels, the others grown by up to `grow`."""
    labels = np.ascontiguousarray(components, np.uint32)
    if min_size > 1:
        sizes = np.bincount(labels.reshape(-1))
        labels = np.where(sizes[labels] >= min_size, labels, np.uint32(0))
    if grow > 0:
        labels = _grown(labels, grow)
    return labels


def _grown(labels: Labels, distance: float) -> Labels:
    """Return labels in which unassigned voxels take that of the nearest labelled voxel within `distance` voxels."""
    from scipy import ndimage

    far, nearest = ndimage.distance_transform_edt(labels == 0, return_indices=True)
    near = far <= distance
    grown = np.zeros_like(labels)
    grown[near] = labels[tuple(places[near] for places in nearest)]
    return grown
