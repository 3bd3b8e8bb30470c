"""Scores of one predicted output, and those of the trivial baselines beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from znnpy.config.models import AffinityTarget, BoundaryTarget
from znnpy.metrics import (
    adapted_rand,
    average_precision,
    fit_threshold,
    from_affinity,
    from_boundary,
    mean_prediction,
    variation,
    voxel_error,
)

Array = npt.NDArray[Any]
Segment = Callable[[Array], Array] | None
"""Objects (z, y, x) from probabilities (K, z, y, x); None where a target shows no objects."""


@dataclass(frozen=True)
class Labelled:
    """What is known of a region: targets and weights (K, z, y, x), objects (z, y, x), raw image.

    `raw` is (z, y, x), the first channel of the first input.
    """

    target: Array
    weight: Array
    objects: Array
    raw: Array


@dataclass(frozen=True)
class Scores:
    """Scores of one predictor; errors and VOI (bits) are better small, average precision large.

    `average_precision` is the mean over target images. The last four are of objects after connected
    components, and None where the target shows none.
    """

    voxel_error: float
    average_precision: float
    adapted_rand_error: float | None = None
    voi: float | None = None
    voi_split: float | None = None
    voi_merge: float | None = None


def score(
    found: Array, ranking: Array, known: Labelled, segment: Segment, threshold: float = 0.5
) -> Scores:
    """Scores of probabilities `found` (K, z, y, x); `ranking` orders voxels for the precision."""
    precisions = [
        average_precision(*images)
        for images in zip(ranking, known.target, known.weight, strict=True)
    ]
    voxels = {
        "voxel_error": voxel_error(found, known.target, known.weight, threshold),
        "average_precision": float(np.nanmean(precisions)),
    }
    if segment is None or not known.objects.any():
        return Scores(**voxels)
    objects = segment(found)
    information = variation(known.objects, objects)
    return Scores(
        **voxels,
        adapted_rand_error=adapted_rand(known.objects, objects).error,
        voi=information.total,
        voi_split=information.split,
        voi_merge=information.merge,
    )


def baselines(train: Labelled, test: Labelled, segment: Segment) -> dict[str, Scores]:
    """Scores on `test` of the mean of each image and of the raw image's threshold, from `train`."""
    mean = np.broadcast_to(mean_prediction(train.target, train.weight), test.target.shape)
    hard, soft = [], []
    for target, weight in zip(train.target, train.weight, strict=True):
        rule = fit_threshold(train.raw, target, balanced(target, weight))
        hard.append(rule.predict(test.raw))
        soft.append(rule.score(test.raw))
    return {
        "predicting the mean": score(mean, mean, test, segment),
        "thresholding raw": score(np.stack(hard), np.stack(soft), test, segment),
    }


def balanced(target: Array, weight: Array) -> Array:
    """Weights that let both classes count the same in total."""
    positive = target > 0.5
    ones, zeros = float(weight[positive].sum()), float(weight[~positive].sum())
    if not ones or not zeros:
        return weight
    return np.where(positive, weight / ones, weight / zeros)


def segmenter(target: object, threshold: float = 0.5) -> Segment:
    """How objects come from predictions of a config's target."""
    if isinstance(target, BoundaryTarget):
        return lambda found: from_boundary(found, threshold)
    if isinstance(target, AffinityTarget):
        offsets = target.offsets
        return lambda found: from_affinity(found, threshold, offsets=offsets)
    return None
