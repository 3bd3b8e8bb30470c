"""Local shape descriptors (Sheridan et al. 2022): the statistics of a voxel's object near it, as a target."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.data.descriptors import BOX, object_descriptors

from znnpy.data.sampling.targets import Bool, Float32, Target
from znnpy.data.volume import Array, Triple64

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
CHANNELS = 10
REACH = 3.0  # sigmas at which the Gaussian is cut off


@dataclass(frozen=True)
class LsdTarget(Target):
    """Ten channels from 0 to 1, by the voxels of a voxel's object, weighed by a Gaussian of `sigma` voxels z, y, x.

    Their mean z, y, x seen from the voxel, by sigma, 0.5 being 0; the variances of z, y, x, by sigma^2; the
    correlations of zy, zx, yx, 0.5 being 0; and how much of the Gaussian the object fills. 0 on background (label 0).
    """

    sigma: Triple64 = (10.0, 10.0, 10.0)

    @property
    def of_zeros(self) -> str:
        """The meaning of label 0, for messages."""
        return "background, whose descriptors are 0"

    @property
    def values(self) -> bool:
        """True: none of them is right or wrong."""
        return True

    @property
    def balanced(self) -> bool:
        """False: a half means nothing in most of its channels."""
        return False

    @property
    def margin(self) -> int:
        """The reach of the widest Gaussian."""
        return max(map(_radius, self.sigma))

    def target_channels(self, given: int) -> int:
        """Return 10."""
        return CHANNELS

    def compute(self, labels: Array, known: Bool) -> tuple[Float32, Float32]:
        """Return values and weights (10, z, y, x)."""
        ids = np.where(known, labels[0], labels.dtype.type(0))
        # What lies within the margin is never looked at.
        values = descriptors(ids, self.sigma, self.margin)
        return values, np.broadcast_to(known.astype(np.float32), values.shape)


def descriptors(ids: Array, sigma: Triple64, margin: int = 0) -> Float32:
    """Return the descriptors (10, z, y, x) of all voxels of objects (z, y, x), float32, as `LsdTarget` has them.

    Those of voxels within `margin` of the border are left 0.
    """
    found = np.zeros((CHANNELS, *ids.shape), np.float32)
    seen = [np.arange(margin, n - margin) for n in ids.shape]
    if min(map(len, seen)) == 0:
        return found
    by_z, by_y, by_x = map(_gaussians, seen, ids.shape, sigma)
    sums = np.zeros((3, ids.shape[2] + 1, len(seen[2])), np.float32)
    for line, power in zip(sums, (2, 0, 1), strict=True):
        line[1:] = by_x[..., power].cumsum(axis=1).T
    runs, begins = _objects(ids)
    depth, height = ids.shape[:2]
    layers, lines, columns = map(len, seen)
    floats = depth * height * 3 * columns + (24 + 10 * layers) * lines * columns
    room = np.empty(8 * (BOX + depth * height) + 4 * floats, np.uint8)
    arrays = (
        found, np.array(ids.shape, np.int64), begins, runs, sums, by_y.astype(np.float32), by_z.astype(np.float32),
        np.array(sigma, np.float32), room,
    )  # fmt: skip
    target, shape, objects, *others = (int(it.ctypes.data) for it in arrays)
    object_descriptors(target, shape, margin, objects, len(begins) - 1, *others)
    return found


def _radius(sigma: float) -> int:
    return math.floor(REACH * sigma + 0.5)


def _gaussians(seen: Int64, count: int, sigma: float) -> Float64:
    """Return how places see a line's voxels 0, 1, ...: weights by the Gaussian, times distance, times its square."""
    far = np.arange(count)[None, :] - seen[:, None]
    radius = _radius(sigma)
    whole = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2).sum()
    weight = np.where(np.abs(far) <= radius, np.exp(-0.5 * (far / sigma) ** 2), 0) / whole
    return np.stack([weight * far.astype(np.float64) ** power for power in range(3)], axis=2)


def _objects(ids: Array) -> tuple[Int64, Int64]:
    """Return the runs (z, y, first x, x behind the last) of objects, one after the other, and where each begins."""
    starts = np.ones(ids.shape, np.bool_)
    np.not_equal(ids[..., 1:], ids[..., :-1], out=starts[..., 1:])
    first = np.flatnonzero(starts)
    length = np.diff(first, append=ids.size)
    numbers = ids.reshape(-1)[first]
    solid = np.flatnonzero(numbers)
    order = solid[np.argsort(numbers[solid], kind="stable")]
    first, length, numbers = first[order], length[order], numbers[order]
    row, x = np.divmod(first, ids.shape[2])
    z, y = np.divmod(row, ids.shape[1])
    changes = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
    return np.stack([z, y, x, x + length], axis=1), np.array([0, *changes, len(numbers)], np.int64)
