"""Overlap of classes, and objects found by their IoU, beside sets of voxels and all distances."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from znnpy.metrics.agreement import IOUS, contingency, object_precision
from znnpy.metrics.overlap import dice, hd95, iou

RNG = np.random.default_rng(0)


def blobs(size: tuple[int, int, int] = (7, 9, 11)) -> np.ndarray:
    z, y, x = np.indices(size)
    middle = [RNG.uniform(2, n - 2) for n in size]
    away = sum((n - m) ** 2 for n, m in zip((z, y, x), middle, strict=True))
    return np.asarray(away < RNG.uniform(4, 12))


def surface(inside: np.ndarray) -> np.ndarray:
    """Voxels of which a face is outside, where the border of the array is, too."""
    wide = np.pad(inside, 1)
    faces = [np.roll(wide, step, axis) for axis in range(3) for step in (-1, 1)]
    return np.argwhere(inside & ~np.all(faces, axis=0)[1:-1, 1:-1, 1:-1])


@pytest.mark.parametrize("size", [(1, 1, 1), (40, 4, 5)])
def test_distances_are_those_between_all_voxels(size: tuple[float, float, float]) -> None:
    for _ in range(10):
        one, other = blobs(), blobs()
        between = cdist(surface(one) * size, surface(other) * size)
        wanted = max(np.percentile(between.min(axis=axis), 95) for axis in (0, 1))
        assert hd95(one, other, size) == pytest.approx(wanted)


def test_overlap_is_that_of_sets() -> None:
    one, other = blobs(), blobs()
    a, b = (set(map(tuple, np.argwhere(it).tolist())) for it in (one, other))
    assert dice(one, other) == pytest.approx(2 * len(a & b) / (len(a) + len(b)))
    assert iou(one, other) == pytest.approx(len(a & b) / len(a | b))


def test_what_is_nowhere() -> None:
    some, none = np.ones((2, 3, 4), bool), np.zeros((2, 3, 4), bool)
    assert dice(none, none) is iou(none, none) is hd95(none, none) is hd95(some, none) is None
    assert (dice(some, none), iou(none, some)) == (0, 0)
    assert type(dice(some, some)) is type(iou(some, some)) is float


@pytest.mark.parametrize("left", [0, 0.2])
@pytest.mark.parametrize("labels", [3, 8])
def test_objects_are_matched_as_by_the_hungarian_method(labels: int, left: float) -> None:
    """Voxels that no object has are missed in those of the truth, and are no objects themselves."""
    truth = np.kron(RNG.integers(1, labels, (2, 4, 4)), np.ones((2, 3, 3), int))
    found = np.where(RNG.random(truth.shape) < 0.15, RNG.integers(1, 9, truth.shape), truth)
    found[RNG.random(truth.shape) < left] = 0
    # One that is found whole, of the largest number, and one of a single voxel.
    truth[0, :3, :3] = found[0, :3, :3] = 30
    truth[1, 0, 0], found[1, 0, 0] = 20, 0 if left else 20
    numbers = np.unique(found[found != 0])
    each = [[truth == n for n in np.unique(truth)], [found == n for n in numbers]]
    overlap = np.array([[(a & b).sum() / (a | b).sum() for b in each[1]] for a in each[0]])
    wanted = []
    for level in IOUS:
        rows, columns = linear_sum_assignment(overlap > level, maximize=True)
        hits = int((overlap > level)[rows, columns].sum())
        wanted.append(hits / (len(each[0]) + len(each[1]) - hits))
    shared = contingency(truth, found)
    assert shared.objects == len(numbers)
    assert (shared.voxels.shape[1] > shared.objects) is bool(left)
    assert object_precision(shared) == pytest.approx(np.mean(wanted))
    assert object_precision(contingency(truth, truth)) == 1
    assert np.mean(wanted) > 0
