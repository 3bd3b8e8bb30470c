"""Segments predictions by components (`metrics.segmentation` computes them), seeded or mutex watershed.

All return new labels uint32 or uint64 (z, y, x), 0 unassigned. Probabilities are float32, 0 to 1.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.data.flooding import flood

from znnpy.data.volume import Triple
from znnpy.errors import VolumeError
from znnpy.metrics import from_affinity, from_boundary

Float32 = NDArray[np.float32]
Labels = NDArray[Any]
SURE = 0.5  # of a boundary map, 1 - probability: above it nothing is foreground
WHEELS = "x86_64"  # the machine that bioimage-cpp has wheels for


def components(
    values: Float32, kind: str, threshold: float, offsets: Sequence[Triple], min_size: int = 0
) -> Labels:
    """Label voxels joined over faces where boundaries are below, foreground or affinities above, `threshold`.

    `values` (C, z, y, x); C is 1 but for affinities, which must hold one step along each axis.
    """
    if kind == "affinity":
        return from_affinity(values, threshold, offsets=offsets)
    inside = values[0] if kind == "boundary" else np.negative(values[0])
    return from_boundary(inside, threshold if kind == "boundary" else -threshold)


def watershed(
    values: Float32, kind: str, threshold: float, offsets: Sequence[Triple], min_size: int
) -> Labels:
    """Flood the boundary map from components of at least `min_size` voxels until they meet.

    Boundaries of affinities are 1 - the least to a nearest neighbour. Boundaries and affinities
    are flooded everywhere, a foreground only where it is above 0.5 (or `threshold`, if lower).
    """
    height = _height(values, kind, offsets)
    seeds = from_boundary(
        height, threshold if kind == "boundary" else 1 - threshold, min_size=min_size
    )
    if not seeds.any():
        return seeds
    inside = (
        height < max(SURE, 1 - threshold) if kind == "foreground" else np.ones(height.shape, bool)
    )
    return _flooded(height, seeds.astype(np.int32), inside)


def _flooded(height: Float32, seeds: NDArray[np.int32], inside: NDArray[np.bool_]) -> Labels:
    """Return `seeds` spread over what is `inside`, from low to high, over faces; all (z, y, x)."""
    height, labels = np.ascontiguousarray(height), np.ascontiguousarray(seeds)
    queue = [np.empty(height.size, kind) for kind in (np.float32, np.int64, np.int64)]
    arrays = [height, np.ascontiguousarray(inside), labels]
    flood(*(it.ctypes.data for it in arrays), *height.shape, *(it.ctypes.data for it in queue))
    return labels


def mutex(
    values: Float32, kind: str, threshold: float, offsets: Sequence[Triple], min_size: int = 0
) -> Labels:
    """Segment by the mutex watershed (Wolf et al. 2018): nearest affinities attract, others repel, surest first.

    An attraction a and a repulsion b are equally sure when a - threshold = threshold - b.
    """
    near = [index for index, offset in enumerate(offsets) if sum(map(abs, offset)) == 1]
    far = [index for index in range(len(offsets)) if index not in near]
    axes = {axis for index in near for axis in range(3) if offsets[index][axis]}
    if len(axes) < 3 or not far:
        raise VolumeError(
            f"the mutex watershed needs affinities to a next neighbour along each axis and to farther "
            f"ones, but the offsets are {[list(offset) for offset in offsets]}; train with more "
            "data.target offsets, or use --method components"
        )
    edges = np.concatenate([values[near], np.float32(2 * threshold) - values[far]])
    order = [offsets[index] for index in (*near, *far)]
    found: Labels = _mutex_watershed()(edges, order, len(near))
    return found


def _height(values: Float32, kind: str, offsets: Sequence[Triple]) -> Float32:
    """Return a map (z, y, x) that is high on boundaries."""
    if kind == "boundary":
        return np.asarray(values[0])
    near = [index for index, offset in enumerate(offsets) if sum(map(abs, offset)) == 1]
    if kind == "affinity" and not near:
        raise VolumeError("no offset of the affinities is a step to a next neighbour")
    inside = values[0] if kind == "foreground" else values[near].min(axis=0)
    return np.asarray(np.float32(1) - inside)


def _mutex_watershed() -> Any:
    try:
        from bioimage_cpp.segmentation import mutex_watershed
    except ImportError as error:
        machine = platform.machine()
        built = f" (no wheel for {machine}: pip builds it, with a C++ compiler)"
        raise VolumeError(
            "the mutex watershed needs the package bioimage-cpp, which is not installed: "
            f'pip install "znnpy[mutex]"{"" if machine == WHEELS else built}'
        ) from error
    return mutex_watershed
