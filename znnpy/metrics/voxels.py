"""Voxel scores: errors and correlation of values; error at a threshold, accuracy of classes, average precision."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.errors import ShapeError, VolumeError

Array = NDArray[Any]
Float64 = NDArray[np.float64]


def voxel_error(
    prediction: Array, target: Array, weight: Array | None = None, threshold: float = 0.5
) -> float:
    """Return the weighted fraction of voxels where prediction > `threshold` and target > 0.5 disagree.

    Arrays of one shape, any; NaN if all weights are 0.
    """
    score, positive, weights = flat(prediction, target, weight)
    wrong = (score > threshold) != positive
    total = weights.sum()
    return float(weights[wrong].sum() / total) if total > 0 else float("nan")


def accuracy(prediction: Array, target: Array, weight: Array | None = None) -> float:
    """Return the weighted fraction of voxels whose largest channel is the target's; arrays (K, z, y, x).

    Of equal channels the first counts as the largest. NaN if all weights are 0.
    """
    right = prediction.argmax(axis=0) == target.argmax(axis=0)
    weights = np.ones(right.shape) if weight is None else weight.max(axis=0).astype(np.float64)
    total = weights.sum()
    return float(weights[right].sum() / total) if total > 0 else float("nan")


def average_precision(prediction: Array, target: Array, weight: Array | None = None) -> float:
    """Return the area under the precision-recall curve, sum of (R_n - R_(n-1)) * P_n over distinct scores.

    Voxels with equal scores enter together, as no threshold separates them, so a constant prediction
    scores the fraction of positives. Arrays of one shape, any; target above 0.5 is positive; NaN if all
    positive voxels have weight 0. Takes about 60 bytes of memory a voxel.
    """
    score, positive, weights = flat(prediction, target, weight)
    order = np.argsort(-score, kind="stable")
    score = score[order]
    true = np.cumsum(np.where(positive, weights, 0)[order])
    all_ = np.cumsum(weights[order])
    last = np.append(score[1:] != score[:-1], True) if score.size else np.zeros(0, np.bool_)
    true, all_ = true[last], all_[last]
    if not true.size or true[-1] <= 0:
        return float("nan")
    precision = np.divide(true, all_, out=np.zeros_like(true), where=all_ > 0)
    gain = np.diff(true, prepend=0.0)
    return float((gain * precision).sum() / true[-1])


def flat(
    prediction: Array, target: Array, weight: Array | None
) -> tuple[Float64, NDArray[np.bool_], Float64]:
    """Return scores, whether positive, and weights of voxels that count, 1-D; checks shapes and NaN."""
    found, wanted, weights = counted(prediction, target, weight)
    return found, wanted > 0.5, weights


def squared_error(prediction: Array, target: Array, weight: Array | None = None) -> float:
    """Return the weighted mean of (prediction - target)^2; arrays of one shape, NaN if all weights are 0."""
    found, wanted, weights = counted(prediction, target, weight)
    return _mean((found - wanted) ** 2, weights)


def absolute_error(prediction: Array, target: Array, weight: Array | None = None) -> float:
    """Return the weighted mean of |prediction - target|; arrays of one shape, NaN if all weights are 0."""
    found, wanted, weights = counted(prediction, target, weight)
    return _mean(np.abs(found - wanted), weights)


def correlation(prediction: Array, target: Array, weight: Array | None = None) -> float:
    """Return Pearson's weighted correlation, from -1 to 1; arrays of one shape, NaN where either is constant."""
    found, wanted, weights = counted(prediction, target, weight)
    if not found.size or not np.ptp(found) or not np.ptp(wanted):
        return float("nan")
    found = found - _mean(found, weights)
    wanted = wanted - _mean(wanted, weights)
    together = _mean(found * wanted, weights)
    return together / math.sqrt(_mean(found**2, weights) * _mean(wanted**2, weights))


def counted(
    prediction: Array, target: Array, weight: Array | None
) -> tuple[Float64, Float64, Float64]:
    """Return predictions, targets and weights of voxels that count, 1-D; checks shapes and NaN."""
    shapes = {prediction.shape, target.shape} | ({weight.shape} if weight is not None else set())
    if len(shapes) > 1:
        raise ShapeError(f"prediction, target and weight must have one shape, got {shapes}")
    found, wanted = (values.reshape(-1).astype(np.float64) for values in (prediction, target))
    if np.isnan(found).any():
        raise VolumeError(
            f"the prediction is NaN at {np.argwhere(np.isnan(prediction))[0].tolist()}"
        )
    if weight is None:
        return found, wanted, np.ones(found.size)
    weights = weight.reshape(-1).astype(np.float64)
    counts = weights > 0
    return found[counts], wanted[counts], weights[counts]


def _mean(values: Float64, weights: Float64) -> float:
    total = weights.sum()
    return float((values * weights).sum() / total) if total > 0 else float("nan")
