"""Searches how objects are found best in a prediction whose labels are known: method, threshold, least size."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.data.volume import ArrayVolume, Volume
from znnpy.errors import VolumeError
from znnpy.evaluation.objects import Row, beyond_labels, read_pair, score_objects
from znnpy.evaluation.scores import Labelled, Segment
from znnpy.metrics.agreement import adapted_rand_of, contingency, variation_of
from znnpy.segment.job import Request, meaning, segment
from znnpy.segment.method import METHODS

LEVELS = (0.2, 0.35, 0.5, 0.65, 0.8)
STEPS = (0.1, 0.05)  # around the best one so far
SIZES = (0, 50, 200, 800)  # least voxels of an object
Try = Callable[[float], float]


@dataclass(frozen=True)
class Tried:
    """One segmentation that was tried: its request, all of which is settled, its scores, how many objects it has."""

    request: Request
    scores: Row
    objects: int

    @property
    def cremi(self) -> float:
        """The score by which the best is chosen; less is better."""
        return float(self.scores["cremi_score"] or 0.0)


def best_threshold(error: Try) -> float:
    """Return a threshold between 0 and 1 whose error is small: the best of a few, then of some around it.

    Of equal ones that nearest to 0.5.
    """
    found = {level: error(level) for level in LEVELS}
    for step in STEPS:
        best = _least(found)
        for level in (round(best - step, 3), round(best + step, 3)):
            if 0 < level < 1 and level not in found:
                found[level] = error(level)
    return _least(found)


def tuned_threshold(ranking: NDArray[Any], known: Labelled, segment_: Segment) -> float | None:
    """Return the threshold at which the objects of a prediction (K, z, y, x) have the best CREMI score.

    None where there are none to find, or to compare with. Choose it on a volume that is not scored.
    """
    if segment_ is None or not known.objects.any():
        return None

    def error(level: float) -> float:
        shared = contingency(known.objects, segment_(ranking, level))
        rand, voi = adapted_rand_of(shared), variation_of(shared)
        return float(max(0.0, rand.error) * voi.total)

    return best_threshold(error)


def tuned(
    prediction: Volume,
    truth: Volume,
    mask: Volume | None,
    request: Request,
    show: Callable[[str], None],
) -> list[Tried]:
    """Return the best segmentation by each method, best first: by CREMI score.

    What `request` names is taken as it is; `show` is told what was left out, and why. Labels lie where their offsets
    say. The volumes stay open. Raises VolumeError for predictions and labels that do not fit.
    """
    if request.method is not None and METHODS[request.method].blocks is not None:
        raise VolumeError(
            f"{prediction.name}: method {request.method} has neither threshold nor sizes, there is nothing to tune"
        )
    _refuse_truth(prediction, truth, mask)
    if (remark := beyond_labels(prediction, truth)) is not None:
        show(remark)
    found = []
    for name in _methods(prediction, request):
        try:
            found.append(_best(prediction, truth, mask, replace(request, method=name)))
        except VolumeError as error:
            if request.method is not None:
                raise
            show(f"{name} was left out: {error}")
    if not found:
        raise VolumeError(f"{prediction.name}: no method could be tried")
    found.sort(key=lambda tried: tried.cremi)
    if found[0].objects < 2:
        show(
            f"the best that was found in {prediction.name} has {found[0].objects or 'no'} object"
            f"{'' if found[0].objects else 's'}, where {truth.name} has several: look at both (znnpy view), and at "
            "what --kind says"
        )
    return found


def _refuse_truth(prediction: Volume, truth: Volume, mask: Volume | None) -> None:
    nothing = ArrayVolume(
        np.zeros(prediction.extent, np.uint8),
        prediction.name,
        prediction.resolution,
        prediction.placed,
    )
    pair = read_pair(nothing, truth, mask)
    if np.unique(pair.truth[pair.known & (pair.truth != 0)]).size < 2:
        raise VolumeError(
            f"{truth.name} has fewer than two objects that count where the prediction lies: nothing to tune on"
        )


def _methods(prediction: Volume, request: Request) -> Iterator[str]:
    kind = meaning(prediction, request.kind, request.channels).kind
    for name, method in METHODS.items():
        wanted = request.method is None or name == request.method
        if wanted and method.blocks is None and kind in method.kinds:
            yield name


def _best(prediction: Volume, truth: Volume, mask: Volume | None, request: Request) -> Tried:
    tried: dict[tuple[float, int], Tried] = {}

    def at(level: float, least: int) -> float:
        wanted = replace(request, threshold=level, min_size=least)
        tried[level, least] = _tried(prediction, truth, mask, wanted)
        return tried[level, least].cremi

    least = request.min_size
    if request.threshold is None:
        level = best_threshold(lambda level: at(level, least))
    else:
        level = request.threshold
        at(level, least)
    for more in _larger(SIZES, least):
        at(level, more)
    # Of equal ones the first, which leaves most as it is.
    return min(tried.values(), key=lambda it: it.cremi)


def _larger(sizes: Sequence[int], least: int) -> Sequence[int]:
    """Return the least sizes to try; none but the given one, if one is given."""
    return () if least else [size for size in sizes if size > 0]


def _tried(prediction: Volume, truth: Volume, mask: Volume | None, request: Request) -> Tried:
    with warnings.catch_warnings():
        # Of objects that are only tried.
        warnings.filterwarnings("ignore", "object [0-9]+ has|no objects in")
        found = segment(prediction, request)
    objects = ArrayVolume(
        found.labels, f"objects of {prediction.name}", prediction.resolution, prediction.placed
    )
    return Tried(request, score_objects(read_pair(objects, truth, mask)), len(found.sizes))


def _least(found: dict[float, float]) -> float:
    return min(found, key=lambda level: (found[level], abs(level - 0.5)))
