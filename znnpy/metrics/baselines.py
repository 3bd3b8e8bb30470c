"""Trivial baselines that a network must beat: predicting the mean, and thresholding the raw image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.errors import VolumeError
from znnpy.metrics.voxels import flat

Array = NDArray[Any]
Float32 = NDArray[np.float32]


def mean_prediction(target: Array, weight: Array | None = None) -> Float32:
    """Return the weighted mean of each target channel: target (K, z, y, x) -> float32 (K, 1, 1, 1)."""
    weights = np.ones(target.shape) if weight is None else weight.astype(np.float64)
    total = weights.sum(axis=(1, 2, 3), keepdims=True)
    if not (total > 0).all():
        raise VolumeError("no voxel of the target counts, so it has no mean")
    mean: Array = (weights * target).sum(axis=(1, 2, 3), keepdims=True) / total
    return mean.astype(np.float32)


@dataclass(frozen=True)
class RawThreshold:
    """A predictor: positive where the raw image is above `threshold` (`bright`), or not above it (dark)."""

    threshold: float
    bright: bool

    def predict(self, raw: Array) -> Float32:
        """Return 1 or 0 for each voxel, in the shape of the raw image."""
        positive: Array = (raw > self.threshold) == self.bright
        return positive.astype(np.float32)

    def score(self, raw: Array) -> Float32:
        """Return the raw image, negated if dark is positive; for average precision."""
        return (raw if self.bright else -raw.astype(np.float32)).astype(np.float32)


def fit_threshold(raw: Array, target: Array, weight: Array | None = None) -> RawThreshold:
    """Return the threshold and polarity of least voxel error, over all values in `raw`.

    Arrays of one shape. Choose it on the volume that the network trains on. Give balanced weights,
    or a rare class may make "nowhere" the best answer. The first of equally good ones is taken.
    """
    values, positive, weights = flat(raw, target, weight)
    if not values.size:
        raise VolumeError("no voxel of the target counts, so no threshold can be chosen")
    levels, index = np.unique(values, return_inverse=True)
    below = np.cumsum(np.bincount(index, np.where(positive, weights, 0), len(levels)))
    below_negative = np.cumsum(np.bincount(index, np.where(positive, 0, weights), len(levels)))
    bright = below + (below_negative[-1] - below_negative)
    dark = weights.sum() - bright
    if bright.min() <= dark.min():
        return RawThreshold(float(levels[bright.argmin()]), True)
    return RawThreshold(float(levels[dark.argmin()]), False)
