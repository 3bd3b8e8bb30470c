"""MALIS by its definition: for all pairs of voxels, the weakest edge on the best path."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np


def edges(
    values: Any, target: Any, weight: Any, offsets: Any
) -> list[tuple[int, int, int, float, float]]:
    """(number, voxel, voxel, value, target) of each edge that counts."""
    shape, found = values.shape[1:], []
    for k, offset in enumerate(offsets):
        for v in np.ndindex(shape):
            there = tuple(a + b for a, b in zip(v, offset, strict=True))
            if all(0 <= a < n for a, n in zip(there, shape, strict=True)) and weight[k, *v]:
                ends = (int(np.ravel_multi_index(p, shape)) for p in (v, there))
                number = int(np.ravel_multi_index((k, *v), values.shape))
                found.append((number, *ends, values[k, *v], target[k, *v]))
    return found  # type: ignore[return-value]


def deciding(voxels: int, taken: list[Any]) -> dict[tuple[int, int], int]:
    """For each pair of voxels that are connected the edge that decides, by trying all paths' bottlenecks."""
    strength = np.full((voxels, voxels), -np.inf)
    number = np.full((voxels, voxels), -1)
    for edge, one, other, value, _ in taken:
        for a, b in ((one, other), (other, one)):
            if value > strength[a, b]:
                strength[a, b], number[a, b] = value, edge
    for k in range(voxels):
        through = np.minimum(strength[:, k, None], strength[None, k])
        first = strength[:, k, None] <= strength[None, k]
        which = np.where(first, number[:, k, None], number[None, k])
        better = through > strength
        strength, number = np.where(better, through, strength), np.where(better, which, number)
    pairs = itertools.combinations(range(voxels), 2)
    return {pair: int(number[pair]) for pair in pairs if number[pair] >= 0}


def brute(values: Any, target: Any, weight: Any, offsets: Any, positive: float) -> float:
    """The loss by its definition: constrained passes over all pairs of voxels."""
    voxels, flat, found = values[0].size, 1 / (1 + np.exp(-values)).ravel(), 0.0
    all_ = edges(values, target, weight, offsets)
    within = deciding(voxels, [e for e in all_ if e[4] > 0.5])
    objects = {a for pair in within for a in pair}
    sure = [(n, a, b, 1e9 if t > 0.5 else x, t) for n, a, b, x, t in all_]
    between = {
        pair: edge
        for pair, edge in deciding(voxels, sure).items()
        if pair not in within and set(pair) <= objects
    }
    for pairs, wanted, share in ((within, 1, positive), (between, 0, 1 - positive)):
        if pairs:
            found += share * np.mean([(flat[edge] - wanted) ** 2 for edge in pairs.values()])
    return found
