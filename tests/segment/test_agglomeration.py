"""Fragments, and how they are joined, beside sets of voxels and SciPy's average linkage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage

from znnpy.segment.agglomeration import joined
from znnpy.segment.faces import Faces, faces
from znnpy.segment.fragments import fragments, is_flat

Pairs = dict[tuple[int, int], list[float]]


def by_voxels(labels: np.ndarray, height: np.ndarray) -> Pairs:
    """The boundary at each face of voxels between two fragments."""
    found: Pairs = {}
    for axis, place in [(axis, place) for axis in range(3) for place in np.ndindex(labels.shape)]:
        beyond = tuple(n + (a == axis) for a, n in enumerate(place))
        if beyond[axis] < labels.shape[axis]:
            low, high = sorted((int(labels[place]), int(labels[beyond])))
            if 0 < low < high:
                found.setdefault((low, high), []).append(max(height[place], height[beyond]))
    return found


def test_faces_are_those_of_all_voxels() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 6, (4, 5, 6)).astype(np.int32)
    height = rng.random(labels.shape).astype(np.float32)
    found, wanted = faces(labels, height), by_voxels(labels, height)
    assert [tuple(pair) for pair in found.pairs.tolist()] == sorted(wanted)
    assert found.size.tolist() == [len(wanted[pair]) for pair in sorted(wanted)]
    np.testing.assert_allclose(found.mean, [np.mean(wanted[pair]) for pair in sorted(wanted)])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("threshold", [0.2, 0.5, 0.8])
def test_average_linkage_is_scipys_where_all_are_neighbours(seed: int, threshold: float) -> None:
    count = 25
    means = np.random.default_rng(seed).random(count * (count - 1) // 2)
    pairs = np.stack(np.triu_indices(count, 1), axis=1) + 1
    roots = joined(Faces(pairs, means, np.ones(len(means))), np.ones(count + 1, int), threshold)
    assert roots[0] == 0
    wanted = fcluster(linkage(means, "average"), threshold, "distance")
    together = roots[1:, None] == roots[1:]
    assert np.array_equal(together, wanted[:, None] == wanted)


def by_sets(pairs: Pairs, threshold: float) -> list[set[int]]:
    """The two sets of least mean boundary become one, until none is below the threshold."""
    objects = [{n} for n in sorted({n for pair in pairs for n in pair})]
    while True:
        best, at = threshold, None
        for i, one in enumerate(objects):
            for other in objects[i + 1 :]:
                values = [
                    v for (a, b), vs in pairs.items() for v in vs
                    if (a in one and b in other) or (b in one and a in other)
                ]  # fmt: skip
                if values and np.mean(values) < best:
                    best, at = float(np.mean(values)), (one, other)
        if at is None:
            return objects
        objects = [it for it in objects if it not in at] + [at[0] | at[1]]


@pytest.mark.parametrize("threshold", [0.35, 0.45, 0.5])
def test_few_neighbours(threshold: float) -> None:
    """As on a grid, where faces are of different sizes."""
    rng = np.random.default_rng(3)
    labels = np.kron(np.arange(1, 28).reshape(3, 3, 3), np.ones((2, 1, 2), np.int32)).astype(int)
    height = rng.random(labels.shape).astype(np.float32) ** 2
    roots = joined(faces(labels, height), np.bincount(labels.ravel()), threshold)
    found = {frozenset(np.flatnonzero(roots == root).tolist()) for root in set(roots[1:].tolist())}
    assert found == set(map(frozenset, by_sets(by_voxels(labels, height), threshold)))
    assert 1 < len(found) < 27


def test_small_ones_join_the_nearest_whatever_lies_between() -> None:
    """A row of fragments of 5, 1, 1, 4 and 9 voxels: what has fewer than 4 joins over the lowest wall."""
    labels = np.repeat([1, 2, 3, 4, 5], [5, 1, 1, 4, 9]).reshape(1, 1, -1)
    height = np.zeros(labels.shape, np.float32)
    height[0, 0, [4, 6, 7, 11]] = 0.7, 0.9, 0.8, 0.6
    found, sizes = faces(labels, height), np.bincount(labels.ravel())
    assert found.mean.round(3).tolist() == pytest.approx([0.7, 0.9, 0.9, 0.6], abs=1e-3)
    alone = joined(found, sizes, 0.5)
    assert len(set(alone.tolist())) == 6
    one, two, three, four, five = joined(found, sizes, 0.5, 4)[1:].tolist()
    assert one == two == three
    assert len({one, four, five}) == 3
    assert len(set(joined(found, sizes, 0.5, 5)[1:].tolist())) == 2


def two_balls() -> np.ndarray:
    """A boundary map of two balls that are open to each other by a gap of 5 voxels, which is 11 wide."""
    height = np.ones((11, 17, 33), np.float32)
    z, y, x = np.ogrid[:11, :17, :33]
    for middle in (8, 24):
        height[(z - 5) ** 2 + (y - 8) ** 2 + (x - middle) ** 2 < 8**2] = 0
    height[4:7, 6:11, 14:19] = 0
    return height


def test_a_gap_does_not_join() -> None:
    height = two_balls()
    found = fragments(height, 0.5, (1, 1, 1))
    assert found.min() > 0
    assert found[5, 8, 4] != found[5, 8, 28]
    assert (found[2:9, 4:13, 5:12] == found[5, 8, 8]).mean() > 0.9


def test_fragments_of_thick_sections_lie_in_one_each() -> None:
    height = two_balls()
    found = fragments(height, 0.5, (40, 4, 4))
    each = [set(np.unique(plane).tolist()) for plane in found]
    assert not any(a & b for i, a in enumerate(each) for b in each[:i])
    assert set.union(*each) - {0} == set(range(1, int(found.max()) + 1))
    assert is_flat((40, 4, 4))
    assert not is_flat((8, 4, 4))


def test_nothing_inside() -> None:
    walls = np.ones((3, 4, 5), np.float32)
    found = fragments(walls, 0.5, (1, 1, 1))
    assert not found.any()
    assert joined(faces(found, walls), np.array([60]), 0.5).tolist() == [0]
