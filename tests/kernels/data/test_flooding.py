"""Flooding from seeds beside scikit-image's watershed, and beside a queue by height and time."""

from __future__ import annotations

import heapq
from itertools import count

import numpy as np
import pytest
from skimage.segmentation import watershed
from znnpy_kernels.data.flooding import BUCKETS, CLOSED, flood

WITHIN = (slice(1, -1),) * 3


def flooded(
    height: np.ndarray, seeds: np.ndarray, inside: np.ndarray, scale: float = float(BUCKETS)
) -> np.ndarray:
    reached = np.pad(height, 1)
    labels = np.pad(np.where(inside, seeds, CLOSED), 1, constant_values=CLOSED)
    room = [np.empty(labels.size, kind) for kind in (np.int64, np.float32, np.int64, np.int64)]
    ends = np.empty((2, BUCKETS), np.int64)
    flood.run(reached, labels, *labels.shape, 0.0, scale, ends, *room)
    return np.maximum(labels[WITHIN], 0)


def queued(height: np.ndarray, seeds: np.ndarray, inside: np.ndarray) -> np.ndarray:
    labels, age = seeds.copy(), count()
    waiting = [(height[at], next(age), at) for at in zip(*np.nonzero(seeds), strict=True)]
    heapq.heapify(waiting)
    while waiting:
        level, _, here = heapq.heappop(waiting)
        for axis, step in ((0, -1), (1, -1), (2, -1), (2, 1), (1, 1), (0, 1)):
            there = tuple(n + step * (a == axis) for a, n in enumerate(here))
            exists = all(0 <= n < m for n, m in zip(there, height.shape, strict=True))
            if exists and inside[there] and not labels[there]:
                labels[there] = labels[here]
                heapq.heappush(waiting, (max(level, height[there]), next(age), there))
    return labels


def drawn(levels: int, seeded: float, share: float) -> list[tuple[np.ndarray, ...]]:
    rng, found = np.random.default_rng([levels, int(100 * seeded)]), []
    for _ in range(10):
        shape = tuple(rng.integers(1, 12, 3))
        height = (rng.integers(0, levels, shape) / levels).astype(np.float32)
        inside = rng.random(shape) <= share
        seeds = np.where((rng.random(shape) < seeded) & inside, rng.integers(1, 9, shape), 0)
        found.append((height, seeds.astype(np.int32), inside))
    return found


@pytest.mark.parametrize("levels", [1, 2, 5, 256, 10**6])
@pytest.mark.parametrize("seeded", [0.01, 0.2, 0.7])
@pytest.mark.parametrize("share", [0.6, 1.0])
def test_it_is_the_watershed(levels: int, seeded: float, share: float) -> None:
    for height, seeds, inside in drawn(levels, seeded, share):
        found = flooded(height, seeds, inside)
        assert np.array_equal(found, queued(height, seeds, inside))
        # Which of several seeds of one height is first, scikit-image leaves to its heap.
        height[seeds > 0] = np.linspace(-1, -0.5, int((seeds > 0).sum()))
        found = flooded(height, seeds, inside)
        assert np.array_equal(found, watershed(height, seeds, mask=inside))


@pytest.mark.parametrize("scale", [0.0, 0.7, 3.0, 1e9, np.inf])
def test_buckets_change_nothing(scale: float) -> None:
    for height, seeds, inside in drawn(30, 0.05, 0.9):
        found = flooded(height, seeds, inside, scale)
        assert np.array_equal(found, queued(height, seeds, inside))


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_flooded_too(odd: float) -> None:
    for height, seeds, inside in drawn(30, 0.05, 1.0):
        height[np.random.default_rng(0).random(height.shape) < 0.1] = odd
        assert (flooded(height, seeds, inside) > 0).all() == seeds.any()


def test_nothing_is_sown() -> None:
    height = np.zeros((2, 3, 4), np.float32)
    nothing = np.zeros((2, 3, 4), np.int32)
    assert not flooded(height, nothing, np.ones((2, 3, 4), bool)).any()
