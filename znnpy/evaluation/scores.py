"""Scores one predicted output, of classes or of values, and the trivial baselines beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from znnpy.config.models import AffinityTarget, BoundaryTarget
from znnpy.data.volume import Triple64
from znnpy.metrics import (
    NEAREST,
    adapted_rand,
    finished,
    fit_threshold,
    from_affinity,
    from_boundary,
    mean_prediction,
    single_step,
)
from znnpy.metrics.metric import METRICS, Compared, Of, Score
from znnpy.segment.methods import agglomerate

Array = npt.NDArray[Any]
Segment = Callable[[Array, float], Array] | None
"""Returns objects (z, y, x) for a ranking (K, z, y, x) and a threshold; None: the target shows no objects."""

SHARES = tuple(share / 20 for share in range(4, 17))
"""Fractions of voxels below the thresholds that `safe_threshold` tries: 20 % to 80 % in steps of 5 %."""
TOLERANCE = 0.15  # by which a cautious threshold's error may be larger than the least


@dataclass(frozen=True)
class Objects:
    """Settings for objects of a prediction, which are fragments joined where the boundary is below `threshold`.

    `threshold` None: 0.5. Objects of fewer than `min_size` voxels are dropped,
    the others grow by `grow` voxels into what is left, if asked for.
    """

    threshold: float | None = None
    min_size: int = 0
    grow: float = 0.0


@dataclass(frozen=True)
class Labelled:
    """The truth of a region: targets and weights (K, z, y, x), objects (z, y, x), raw image.

    `raw` is (z, y, x), the first channel of the first input; `size` that of a voxel, z, y, x.
    """

    target: Array
    weight: Array
    objects: Array
    raw: Array
    size: Triple64 = (1.0, 1.0, 1.0)


@dataclass(frozen=True)
class Predicted:
    """One predictor's result on a region: `decision` above 0.5 is positive, `ranking` orders voxels.

    Both (K, z, y, x). Objects come from the ranking.
    """

    decision: Array
    ranking: Array


@dataclass(frozen=True)
class Scores:
    """Scores of one predictor by the names of `METRICS`, which are its attributes too; None where there is none.

    Errors and VOI (bits) are better small, average precision large. `threshold`: of the ranking, where objects are
    separated. `of_values`: the target's values are scored, not decisions made from them. `first`: number of the first
    class.
    """

    found: Mapping[str, Score]
    threshold: float | None = None
    of_values: bool = False
    first: int = 0

    def __getattr__(self, name: str) -> Any:
        """Return the score of this name."""
        if name.startswith("_") or name not in self.found:
            raise AttributeError(f"no score {name!r}; there are {', '.join(self.found)}")
        return self.found[name]

    def record(self) -> dict[str, Any]:
        """Return the numbers, JSON-able."""
        return dict(self.found) | ({} if self.of_values else {"threshold": self.threshold})


def deviations(found: Array, known: Labelled) -> Scores:
    """Return the scores of one predictor's values (K, z, y, x)."""
    compared = Compared(found, found, known.target, known.weight, known.objects)
    return Scores(_found(compared, {"values"}, {"values"}), of_values=True)


def score(
    found: Predicted,
    known: Labelled,
    objects: Array | None,
    threshold: float | None,
    *,
    classes: bool = False,
) -> Scores:
    """Return the scores of one predictor: of `objects` at a threshold if there are some, also of `classes`."""
    compared = Compared(
        found.decision,
        found.ranking,
        known.target,
        known.weight,
        known.objects,
        objects,
        known.size,
        classes,
    )
    has: set[Of] = {"decisions"}
    has |= {"classes"} if classes else set()
    has |= set() if objects is None else {"objects"}
    scores = _found(compared, {"decisions", "classes", "objects"}, has)
    return Scores(scores, None if objects is None else threshold)


def separated(
    found: Predicted, known: Labelled, segment: Segment, threshold: float | None
) -> Array | None:
    """Return the objects of a ranking, None where there are none to find, or to compare with."""
    if segment is None or threshold is None or not known.objects.any():
        return None
    return segment(found.ranking, threshold)


def _found(compared: Compared, asked: set[Of], has: set[Of]) -> dict[str, Score]:
    """Return the scores by all metrics of the `asked` kinds; None for kinds that the prediction lacks."""
    return {
        name: metric.score(compared) if metric.of in has else None
        for name, metric in METRICS.items()
        if metric.of in asked
    }


def safe_threshold(
    ranking: Array, known: Labelled, segment: Segment, *, cautious_first: bool
) -> float | None:
    """Return a threshold with a small adapted Rand error, among a few quantiles of a ranking.

    Where objects begin to merge the error leaps, and on another volume that may be a little earlier:
    so not the best is taken, but the most cautious whose error is at most `TOLERANCE` larger. Low thresholds
    are cautious for boundaries (`cautious_first`), high ones for affinities. Choose it where the
    network was trained, never where it is scored.
    """
    if segment is None or not known.objects.any():
        return None
    levels = [float(level) for level in np.unique(np.quantile(ranking, SHARES))]
    levels = levels if cautious_first else levels[::-1]
    errors = [adapted_rand(known.objects, segment(ranking, level)).error for level in levels]
    limit = (1 + TOLERANCE) * min(errors)
    return next(level for level, error in zip(levels, errors, strict=True) if error <= limit)


def baselines(
    train: Labelled, test: Labelled, *, by_raw: bool = True
) -> dict[str, tuple[Predicted, Predicted]]:
    """Return the trivial predictors, each fitted on `train`, on both: each channel's mean, and the raw threshold.

    The latter only if `by_raw`, that is where labels are classes of single voxels.
    """
    mean = mean_prediction(train.target, train.weight)
    flat = [np.broadcast_to(mean, known.target.shape) for known in (train, test)]
    found = {"predicting the mean": (Predicted(flat[0], flat[0]), Predicted(flat[1], flat[1]))}
    return found | {"thresholding raw": _thresholded(train, test)} if by_raw else found


def _thresholded(train: Labelled, test: Labelled) -> tuple[Predicted, Predicted]:
    rules = [
        fit_threshold(train.raw, target, balanced(target, weight))
        for target, weight in zip(train.target, train.weight, strict=True)
    ]
    before, now = (
        Predicted(
            np.stack([rule.predict(known.raw) for rule in rules]),
            np.stack([rule.score(known.raw) for rule in rules]),
        )
        for known in (train, test)
    )
    return before, now


def balanced(target: Array, weight: Array) -> Array:
    """Return weights by which both classes count the same in total."""
    positive = target > 0.5
    ones, zeros = float(weight[positive].sum()), float(weight[~positive].sum())
    if not ones or not zeros:
        return weight
    return np.where(positive, weight / ones, weight / zeros)


def segmenter(target: object, objects: Objects, resolution: Triple64) -> Segment:
    """Return the function that finds objects in a net's probabilities, by agglomeration as `znnpy segment` does.

    None where there are none, nor for affinities that lead to no neighbour along some axis. `resolution`: voxel size
    (z, y, x).
    """
    if isinstance(target, BoundaryTarget):
        kind, offsets = "boundary", NEAREST
    elif _leads_everywhere(target):
        kind, offsets = "affinity", target.offsets
    else:
        return None

    def find(found: Array, level: float) -> Array:
        labels = agglomerate(found, kind, level, offsets, objects.min_size, resolution=resolution)
        return finished(labels, objects.min_size, objects.grow)

    return find


def by_components(target: object, objects: Objects) -> Segment:
    """Return the function that finds objects in a baseline's ranking, of any range: connected components."""
    size, grow = objects.min_size, objects.grow
    if isinstance(target, BoundaryTarget):
        return lambda found, level: from_boundary(found, level, min_size=size, grow=grow)
    if _leads_everywhere(target):
        offsets, least = target.offsets, max(2, size)  # of size 1: joined to none
        return lambda found, level: from_affinity(
            found, level, offsets=offsets, min_size=least, grow=grow
        )
    return None


def _leads_everywhere(target: object) -> TypeGuard[AffinityTarget]:
    return isinstance(target, AffinityTarget) and all(
        single_step(target.offsets, axis) for axis in range(3)
    )
