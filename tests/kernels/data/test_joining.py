"""Joining regions beside the same by sets and dictionaries, the least boundary looked for anew each time."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from znnpy_kernels.data.joining import join

BINS = 8


class Graph:
    """Regions of some voxels; edges with sums, numbers and histograms of faces."""

    def __init__(self, seed: int, regions: int = 40, edges: int = 140) -> None:
        rng = np.random.default_rng(seed)
        drawn = {tuple(sorted(pair)) for pair in rng.integers(1, regions, (edges, 2)).tolist()}
        self.pairs = np.array(sorted(pair for pair in drawn if pair[0] < pair[1]), np.int64)
        self.size = rng.integers(1, 9, len(self.pairs)).astype(np.float64)
        # Binary fractions: sums are exact in any order.
        self.total = np.array([rng.integers(0, int(64 * n) + 1) / 64 for n in self.size])
        self.counts = np.stack(
            [rng.multinomial(int(n), np.full(BINS, 1 / BINS)) for n in self.size]
        ).astype(np.int32)
        self.voxels = rng.integers(1, 30, regions)
        self.voxels[0] = 0

    def joined(self, threshold: float, least: int, bins: int = 0) -> np.ndarray:
        """The parents of all regions by the kernel, followed to the end."""
        regions, edges = len(self.voxels), len(self.pairs)
        parents, slots = np.arange(regions), 1 << max(1, 2 * edges).bit_length()
        table = np.zeros(slots + 1, np.int64)
        table[0] = slots
        longs = [np.zeros(n, np.int64) for n in (regions, regions, 4 * edges, edges, edges)]
        join.run(
            regions, edges, self.pairs.copy(), self.total.copy(), self.size.copy(),
            self.counts.copy(), bins, self.voxels.copy(), parents, *longs, np.zeros(edges), table,
            least, threshold,
        )  # fmt: skip
        for _ in range(regions):
            parents = parents[parents]
        return parents


def boundary(total: Fraction, size: int, counts: np.ndarray, bins: int) -> Fraction:
    """The mean, or the place within the bin where half of the faces are passed."""
    if bins == 0:
        return total / size
    passed = np.concatenate([[0], np.cumsum(counts)])
    number = int(np.searchsorted(passed, size / 2)) - 1
    inside = (Fraction(size, 2) - int(passed[number])) / int(counts[number])
    return (number + inside) / bins


def by_sets(graph: Graph, threshold: float, least: int, bins: int) -> list[frozenset[int]]:
    """Objects of the graph; an edge keeps its number until it and another are one, then the other's."""
    objects = [frozenset({n}) for n in range(len(graph.voxels))]

    @cache  # nearly all pairs stay as they are from one turn to the next
    def between(one: frozenset[int], other: frozenset[int]) -> Fraction | None:
        edges = [
            k for k, (a, b) in enumerate(graph.pairs.tolist())
            if (a in one and b in other) or (b in one and a in other)
        ]  # fmt: skip
        if not edges:
            return None
        total, size = sum(Fraction(graph.total[k]) for k in edges), int(graph.size[edges].sum())
        return boundary(Fraction(total), size, graph.counts[edges].sum(axis=0), bins)

    while True:
        best: tuple[Fraction, int, int] | None = None
        for i, one in enumerate(objects):
            for j in range(i):
                other = objects[j]
                value = between(one, other)
                if value is None:
                    continue
                smaller = min(sum(int(graph.voxels[n]) for n in it) for it in (one, other))
                if (value < threshold or smaller < least) and (best is None or value < best[0]):
                    best = (value, i, j)
        if best is None:
            return objects
        _, i, j = best
        objects[j] |= objects[i]
        del objects[i]


@pytest.mark.share(20)
@pytest.mark.parametrize("bins", [0, BINS])
@pytest.mark.parametrize("least", [0, 25])
@pytest.mark.parametrize("seed", range(8))
def test_as_by_sets(seed: int, least: int, bins: int) -> None:
    graph = Graph(seed)
    if bins == 0:
        # Means that differ, so that no order of equal ones decides.
        graph.total += np.random.default_rng(seed).permutation(len(graph.total)) / 2**20
    else:
        drawn = np.random.default_rng(seed).random(graph.counts.shape) ** 6
        graph.counts = 1 + (drawn * 2**14).astype(np.int32)
        graph.size = graph.counts.sum(axis=1).astype(np.float64)
    parents = graph.joined(0.45, least, bins)
    wanted = by_sets(graph, 0.45, least, bins)
    found = {frozenset(np.flatnonzero(parents == root).tolist()) for root in set(parents.tolist())}
    assert found == set(map(frozenset, wanted))
    assert 3 < len(found) < len(graph.voxels) - 3


def test_many_neighbours() -> None:
    """A star whose middle joins all of its many leaves, and a chain: one object each."""
    graph = Graph(0)
    leaves = 3000
    star = [(1, n) for n in range(2, leaves)]
    chain = [(n, n + 1) for n in range(leaves, 2 * leaves)]
    graph.pairs = np.array(star + chain, np.int64)
    graph.size = np.ones(len(graph.pairs))
    graph.total = np.linspace(0.4, 0.1, len(graph.pairs))
    graph.counts = np.zeros((len(graph.pairs), BINS), np.int32)
    graph.voxels = np.ones(2 * leaves + 1, np.int64)
    parents = graph.joined(0.5, 0)
    assert len(set(parents[1:leaves].tolist())) == len(set(parents[leaves:].tolist())) == 1
    assert parents[0] == 0
    assert graph.joined(0.1, 0).tolist() == list(range(2 * leaves + 1))


def test_without_edges() -> None:
    graph = Graph(0)
    graph.pairs = np.zeros((0, 2), np.int64)
    graph.size = graph.total = np.zeros(0)
    assert graph.joined(1.0, 100).tolist() == list(range(len(graph.voxels)))
