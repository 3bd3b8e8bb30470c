"""Operations of tasks by the textbook; padding of lanes and tiles is not counted.

A real transform of n points counts 2.5 n log2 n, a complex multiply-add 8, a real one 2.
"""

from __future__ import annotations

from math import log2

from znnpy.engine.tasks.task_identity import Identity
from znnpy.geometry import voxels
from znnpy.network.types import Triple
from znnpy.plan import ConvShape

Operations = dict[Identity, float]
"""Operations of all tasks that are the same together, in one update."""


def of_convolution(shape: ConvShape) -> float:
    """One pass of a layer, if it ran by direct convolution."""
    pairs = shape.batch * shape.inputs * shape.outputs
    return 2.0 * pairs * voxels(shape.size) * voxels(shape.places)


def of_transform(size: Triple) -> float:
    """One real transform of so many points along z, y, x."""
    return 2.5 * voxels(size) * log2(max(2, voxels(size)))
