"""Metrics of predictions: voxel scores, segmentation scores, and trivial baselines to compare with."""

from znnpy.metrics.agreement import AdaptedRand, Variation, adapted_rand, variation
from znnpy.metrics.baselines import RawThreshold, fit_threshold, mean_prediction
from znnpy.metrics.segmentation import (
    NEAREST,
    finished,
    from_affinity,
    from_boundary,
    single_step,
)
from znnpy.metrics.voxels import (
    absolute_error,
    accuracy,
    average_precision,
    correlation,
    squared_error,
    voxel_error,
)

__all__ = [
    "NEAREST",
    "AdaptedRand",
    "RawThreshold",
    "Variation",
    "absolute_error",
    "accuracy",
    "adapted_rand",
    "average_precision",
    "correlation",
    "finished",
    "fit_threshold",
    "from_affinity",
    "from_boundary",
    "mean_prediction",
    "single_step",
    "squared_error",
    "variation",
    "voxel_error",
]
