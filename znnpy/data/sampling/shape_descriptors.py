"""Local shape descriptors (Sheridan et al. 2022): the statistics of a voxel's object near it, as a target."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from znnpy.data.sampling.targets import Bool, Float32, Target
from znnpy.data.volume import Array, Triple64

Float64 = NDArray[np.float64]
CHANNELS = 10
REACH = 3.0  # sigmas at which the Gaussian is cut off
LEAST = 1e-3  # of a variance, in voxels, as correlations are divided by it
# Powers of z, y and x: the count, means, second moments, and mixed ones zy, zx, yx.
POWERS = (
    (0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (2, 0, 0), (0, 2, 0), (0, 0, 2),
    (1, 1, 0), (1, 0, 1), (0, 1, 1),
)  # fmt: skip
MIXED = ((0, 1), (0, 2), (1, 2))


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
        values = descriptors(ids, self.sigma, self.margin).astype(np.float32)
        return values, np.broadcast_to(known, values.shape).astype(np.float32)


def descriptors(ids: Array, sigma: Triple64, margin: int = 0) -> Float64:
    """Return the descriptors (10, z, y, x) of all voxels of objects (z, y, x), as `LsdTarget` has them.

    Those of voxels within `margin` of the border are left 0.
    """
    found = np.zeros((CHANNELS, *ids.shape))
    core = tuple(slice(margin, n - margin) for n in ids.shape)
    if min(ids.shape) <= 2 * margin:
        return found
    for number in np.unique(ids[core][ids[core] != 0]):
        own = ids == number
        # An object's statistics need no voxel beside its box.
        box = [
            (int(line.argmax()), len(line) - int(line[::-1].argmax()))
            for line in (own.any(axis=(1, 2)), own.any(axis=(0, 2)), own.any(axis=(0, 1)))
        ]
        wanted = [
            (max(a, margin), min(b, n - margin)) for (a, b), n in zip(box, ids.shape, strict=True)
        ]
        inside, at = (tuple(slice(*ends) for ends in part) for part in (box, wanted))
        values = _normalised(_moments(own[inside], box, wanted, sigma), sigma)
        found[(slice(None), *at)] += np.where(own[at], values, 0)
    return found


def _radius(sigma: float) -> int:
    return math.floor(REACH * sigma + 0.5)


def _gaussians(box: tuple[int, int], wanted: tuple[int, int], sigma: float) -> list[Float64]:
    """Return matrices that sum a line weighed by the Gaussian, and by it times the distance, and that squared."""
    far = np.arange(*box)[None, :] - np.arange(*wanted)[:, None]
    radius = _radius(sigma)
    whole = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2).sum()
    weight = np.where(np.abs(far) <= radius, np.exp(-0.5 * (far / sigma) ** 2), 0) / whole
    return [weight * far.astype(np.float64) ** power for power in range(3)]


def _moments(
    own: Bool, box: list[tuple[int, int]], wanted: list[tuple[int, int]], sigma: Triple64
) -> Float64:
    """Return the weighed sums of `POWERS` of distances to an object's voxels in its box, at the wanted voxels."""
    by_z, by_y, by_x = (_gaussians(*it) for it in zip(box, wanted, sigma, strict=True))
    lines = own.astype(np.float64)
    # Along one axis after the other: each product of matrices serves all that it can.
    along_z = [np.tensordot(matrix, lines, 1) for matrix in by_z]
    along_y = {(a, b): by_y[b] @ along_z[a] for a, b in {(power[0], power[1]) for power in POWERS}}
    return np.stack([along_y[a, b] @ by_x[c].T for a, b, c in POWERS])


def _normalised(moments: Float64, sigma: Triple64) -> Float64:
    count = np.where(moments[0] == 0, 1, moments[0])
    mean = moments[1:4] / count
    variance = np.maximum(moments[4:7] / count - mean**2, LEAST)
    scale = np.array(sigma)[:, None, None, None]
    correlations = [
        (moment / count - mean[a] * mean[b]) / np.sqrt(variance[a] * variance[b])
        for moment, (a, b) in zip(moments[7:], MIXED, strict=True)
    ]
    parts = (
        mean / scale * 0.5 + 0.5,
        variance / scale**2,
        np.stack(correlations) * 0.5 + 0.5,
        moments[:1],
    )
    found: Float64 = np.clip(np.concatenate(parts), 0, 1)
    return found
