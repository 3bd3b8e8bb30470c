"""Counts of floating-point operations by textbook formulas; padding of lanes and tiles is not counted.

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
    """Return the operations of one pass of a layer by direct convolution."""
    pairs = shape.batch * shape.inputs * shape.outputs // shape.groups
    return 2.0 * pairs * voxels(shape.size) * voxels(shape.places)


def of_transform(size: Triple) -> float:
    """Return the operations of one real transform of a size (z, y, x)."""
    return 2.5 * voxels(size) * log2(max(2, voxels(size)))
