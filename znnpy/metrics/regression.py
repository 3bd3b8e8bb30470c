"""Scores of predicted values: squared and absolute error, Pearson's correlation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.errors import ShapeError, VolumeError

Array = NDArray[Any]
Float64 = NDArray[np.float64]


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
