"""How far classes overlap: Dice, intersection over union, and the distance between their surfaces."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Triple64 = tuple[float, float, float]


def dice(found: Array, wanted: Array) -> float | None:
    """Return twice the voxels that both have, over those of each; bool arrays of one shape. None if both are empty."""
    each = np.count_nonzero(found) + np.count_nonzero(wanted)
    return float(2 * np.count_nonzero(found & wanted) / each) if each else None


def iou(found: Array, wanted: Array) -> float | None:
    """Return the voxels that both have, over those of either; bool arrays of one shape. None if both are empty."""
    either = np.count_nonzero(found | wanted)
    return float(np.count_nonzero(found & wanted) / either) if either else None


def hd95(found: Array, wanted: Array, size: Triple64 = (1.0, 1.0, 1.0)) -> float | None:
    """Return the larger of both 95th percentiles of the distance from one surface to the other (Hausdorff).

    Bool arrays (z, y, x); `size` of a voxel, whose unit the distance has. A surface is what an erosion over faces
    takes away, the border of the array outside. None where either is empty.
    """
    if not found.any() or not wanted.any():
        return None
    from scipy import ndimage

    surfaces = [it & ~ndimage.binary_erosion(it) for it in (found, wanted)]
    far = [ndimage.distance_transform_edt(~it, size) for it in surfaces]
    between = ((surfaces[0], far[1]), (surfaces[1], far[0]))
    return max(float(np.percentile(distance[surface], 95)) for surface, distance in between)
