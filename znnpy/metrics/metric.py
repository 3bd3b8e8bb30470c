"""The registry of evaluation metrics: names, titles, what each scores, and how it is computed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from znnpy.metrics.agreement import (
    AdaptedRand,
    Contingency,
    Variation,
    adapted_rand_of,
    contingency,
    object_precision,
    variation_of,
)
from znnpy.metrics.overlap import Triple64, dice, hd95, iou
from znnpy.metrics.voxels import (
    absolute_error,
    accuracy,
    average_precision,
    correlation,
    squared_error,
    voxel_error,
)
from znnpy.registry import Registry

Array = NDArray[Any]
Score = float | tuple[float | None, ...] | None
"""One number, or one for each channel; None where there is none."""

Of = Literal["decisions", "classes", "objects", "values"]
"""What a metric scores: decisions voxel by voxel, classes (a channel each), objects, or values."""


@dataclass(frozen=True)
class Compared:
    """A prediction and the truth of its region, for metrics.

    `decision` above 0.5 is positive, `ranking` orders voxels, `target` and `weight` belong to them: all (K, z, y, x);
    for values, decision and ranking are the values. `truth`: labelled objects (z, y, x), 0 unknown;
    `objects`: those of the prediction, None where it shows none; `size` of a voxel, z, y, x. `whole_voxels`: channels
    are classes, of which a voxel has one.
    """

    decision: Array
    ranking: Array
    target: Array
    weight: Array
    truth: Array
    objects: Array | None = None
    size: Triple64 = (1.0, 1.0, 1.0)
    whole_voxels: bool = False

    @cached_property
    def classes(self) -> list[tuple[Array, Array]]:
        """The voxels (z, y, x) that are found and wanted of each class, of those that count."""
        counted, largest = self.weight.max(axis=0) > 0, self.decision.argmax(axis=0)
        return [
            (counted & (largest == number), counted & (wanted > 0.5))
            for number, wanted in enumerate(self.target)
        ]

    @cached_property
    def shared(self) -> Contingency:
        """Voxels of each object of the truth in each of the prediction."""
        assert self.objects is not None
        return contingency(self.truth, self.objects)

    @cached_property
    def rand(self) -> AdaptedRand:
        """Adapted Rand error between the objects."""
        return adapted_rand_of(self.shared)

    @cached_property
    def variation(self) -> Variation:
        """Variation of information between the objects."""
        return variation_of(self.shared)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric: `score(compared)` of the kind `of`; one of objects is called only where both sides have some.

    `title`: in tables, where numbers have the `format`; `name`: in JSON. `higher`: whether higher scores are better.
    `of_patches`: whether patches that lie one behind the other can be scored, as validations do.
    """

    name: str
    title: str
    of: Of
    score: Callable[[Compared], Score]
    format: str = ".4f"
    higher: bool = False
    of_patches: bool = True


def _voxel_error(it: Compared) -> float:
    """Return the share of wrong voxels, of classes of those whose largest channel is another, else of each channel."""
    if it.whole_voxels:
        return 1 - accuracy(it.decision, it.target, it.weight)
    return voxel_error(it.decision, it.target, it.weight)


def _average_precision(it: Compared) -> float | None:
    """Return the mean over target channels, of those where any voxel is positive."""
    channels = zip(it.ranking, it.target, it.weight, strict=True)
    found = [value for each in channels if not math.isnan(value := average_precision(*each))]
    return float(np.mean(found)) if found else None


def _correlations(it: Compared) -> tuple[float | None, ...]:
    """Return Pearson's correlation of each channel; None where channel or target is constant."""
    each = [correlation(*c) for c in zip(it.ranking, it.target, it.weight, strict=True)]
    return tuple(None if math.isnan(value) else value for value in each)


def _surface_distances(it: Compared) -> tuple[float | None, ...]:
    """Return the HD95 of each class; None of whole images with a class each, which have no surface."""
    if it.truth.shape[1:] == (1, 1):
        return (None,) * len(it.classes)
    return tuple(hd95(*pair, it.size) for pair in it.classes)


METRICS = Registry[Metric](
    "metric",
    (
        Metric(
            name="voxel_error",
            title="voxel error",
            of="decisions",
            score=_voxel_error,
        ),
        Metric(
            name="average_precision",
            title="average precision",
            of="decisions",
            score=_average_precision,
            higher=True,
        ),
        Metric(
            name="accuracy",
            title="accuracy",
            of="classes",
            score=lambda it: accuracy(it.decision, it.target, it.weight),
            higher=True,
        ),
        Metric(
            name="dice",
            title="Dice",
            of="classes",
            score=lambda it: tuple(dice(*pair) for pair in it.classes),
            higher=True,
        ),
        Metric(
            name="iou",
            title="IoU",
            of="classes",
            score=lambda it: tuple(iou(*pair) for pair in it.classes),
            higher=True,
        ),
        Metric(
            name="hd95",
            title="HD95",
            of="classes",
            score=_surface_distances,
            format=".4g",
            of_patches=False,
        ),
        Metric(
            name="adapted_rand_error",
            title="adapted Rand error",
            of="objects",
            score=lambda it: it.rand.error,
        ),
        Metric(name="voi", title="VOI", of="objects", score=lambda it: it.variation.total),
        Metric(
            name="voi_split", title="VOI split", of="objects", score=lambda it: it.variation.split
        ),
        Metric(
            name="voi_merge", title="VOI merge", of="objects", score=lambda it: it.variation.merge
        ),
        Metric(
            name="cremi_score",
            title="CREMI score",
            of="objects",
            score=lambda it: math.sqrt(it.variation.total * max(0.0, it.rand.error)),
        ),
        Metric(
            name="object_precision",
            title="average precision over IoU",
            of="objects",
            score=lambda it: object_precision(it.shared),
            higher=True,
        ),
        Metric(
            name="squared_error",
            title="mean squared error",
            of="values",
            score=lambda it: squared_error(it.ranking, it.target, it.weight),
            format=".4g",  # of values of any size
        ),
        Metric(
            name="absolute_error",
            title="mean absolute error",
            of="values",
            score=lambda it: absolute_error(it.ranking, it.target, it.weight),
            format=".4g",
        ),
        Metric(
            name="correlation",
            title="correlation",
            of="values",
            score=_correlations,
            higher=True,
        ),
    ),
)
