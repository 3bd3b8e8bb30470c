"""What came out of a segmentation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Summary:
    """What came out: how many objects, of how many voxels in all; the largest one's number and voxels."""

    objects: int
    assigned: int
    largest: int
    voxels: int

    @classmethod
    def of(cls, sizes: NDArray[np.int64]) -> Summary:
        """Return the summary of objects, numbered from 1, of so many voxels."""
        largest = int(sizes.argmax()) + 1 if len(sizes) else 0
        return cls(len(sizes), int(sizes.sum()), largest, int(sizes.max(initial=0)))
