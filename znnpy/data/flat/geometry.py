"""Where a scan lies: voxel size, offset and directions of its axes from a matrix, and back.

`directions` are three unit vectors, of the axes z, y and x, each with its parts to the right, to the front and up
(RAS, as in NIfTI). `offset` counts along the axes: the first voxel lies at the sum of offset times direction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.data.volume import Directions, Triple64, directions_of
from znnpy.errors import VolumeError

DIGITS = 7  # of a voxel size: as many as a float32 has, as headers hold
UPRIGHT: Directions = ((0.0, 0.0, 1.0), (0.0, 1.0, 0.0), (1.0, 0.0, 0.0))
LPS = np.array([-1.0, -1.0, 1.0])
"""Factors that turn left, back, up (as ITK counts) into right, front, up, and the other way round."""


@dataclass(frozen=True)
class Place:
    """Voxel size and offset z, y, x in nanometres, and directions; None where a file does not say."""

    resolution: Triple64 = (1.0, 1.0, 1.0)
    offset: Triple64 | None = None
    directions: Directions | None = None


NOWHERE = Place()


def placed(steps: NDArray[Any], origin: NDArray[Any], name: str) -> Place:
    """Return the place of a volume from the steps of its axes x, y, z, one a column, and its first voxel; RAS, nm.

    Raises VolumeError for steps that do not span space.
    """
    steps, origin = np.asarray(steps, np.float64), np.asarray(origin, np.float64)
    if not (np.isfinite(steps).all() and np.isfinite(origin).all()):
        raise VolumeError(f"{name}: the matrix of its place holds values that are not finite")
    sizes = np.linalg.norm(steps, axis=0)
    directions = _directions(steps, sizes)
    if directions is None:
        raise VolumeError(
            f"{name}: the matrix of its place does not span three dimensions: {steps.tolist()}"
        )
    offset = np.linalg.solve(np.array(directions).T, origin)
    z, y, x = (rounded(v) for v in sizes[::-1])
    return Place((z, y, x), (float(offset[0]), float(offset[1]), float(offset[2])), directions)


def sized(sizes: Any, name: str) -> Triple64:
    """Return a voxel size z, y, x in nanometres; VolumeError unless all are positive numbers."""
    z, y, x = (rounded(float(v)) for v in sizes)
    if not all(math.isfinite(v) and v > 0 for v in (z, y, x)):
        raise VolumeError(f"{name}: the voxel size {(z, y, x)} (z, y, x, nm) must be positive")
    return (z, y, x)


def rounded(value: float) -> float:
    """Return a number without the digits that come from a float32."""
    return float(f"{value:.{DIGITS}g}")


def matrix_of(attributes: Mapping[str, Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the steps of the axes x, y, z, one a column, and the place of the first voxel, of an output; RAS, nm."""
    size = np.array(attributes.get("resolution", (1.0, 1.0, 1.0)), np.float64)
    offset = np.array(attributes.get("offset", (0.0, 0.0, 0.0)), np.float64)
    directions = np.array(directions_of(attributes.get("directions")) or UPRIGHT)
    return (directions * size[:, None])[::-1].T, offset @ directions


def _directions(steps: NDArray[Any], sizes: NDArray[Any]) -> Directions | None:
    if not (sizes > 0).all():
        return None
    return directions_of((steps / sizes).T[::-1])
