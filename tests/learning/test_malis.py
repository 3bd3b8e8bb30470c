"""MALIS against its definition: for all pairs of voxels, the weakest edge on the best path."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from objectives import objective_of
from scipy.ndimage import label

from znnpy.data.sampling.targets import AffinityTarget

NEAREST = ((-1, 0, 0), (0, -1, 0), (0, 0, -1))
FAR = (*NEAREST, (0, 0, 2), (0, -1, 1))


def made(seed: int, shape: tuple[int, ...], offsets: Any) -> tuple[Any, Any, Any]:
    """Values without ties, affinities of random objects on a background of 0, and weights: some 0."""
    rng = np.random.default_rng(seed)
    objects = label(rng.random(shape) < 0.75)[0] * (rng.random(shape) < 0.95)
    target, weight = AffinityTarget(offsets).compute(objects[None], rng.random(shape) < 0.95)
    values = rng.permutation(target.size).reshape(target.shape) / target.size * 6 - 3
    return values, target.astype(np.float64), weight.astype(np.float64)


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


@pytest.mark.quick(4)
@pytest.mark.parametrize("offsets", [NEAREST, FAR])
@pytest.mark.parametrize("seed", range(6))
def test_the_loss_is_that_of_all_pairs(seed: int, offsets: Any) -> None:
    values, target, weight = made(seed, (2, 4, 5), offsets)
    objective = objective_of("malis", offsets=offsets, positive=0.3)
    found, gradient = objective.value_and_gradient(*(a[None] for a in (values, target, weight)))
    assert found == pytest.approx(brute(values, target, weight, offsets, 0.3), rel=1e-5)
    assert found > 0
    for number in np.random.default_rng(seed).choice(values.size, 12, replace=False):
        index = np.unravel_index(number, values.shape)
        step = np.zeros_like(values)
        step[index] = 1e-6
        above, below = (brute(values + s, target, weight, offsets, 0.3) for s in (step, -step))
        assert gradient[0][index] == pytest.approx((above - below) / 2e-6, rel=1e-4, abs=1e-8)


def test_samples_are_averaged_and_empty_ones_lose_nothing() -> None:
    one, other = (made(seed, (2, 4, 5), NEAREST) for seed in (1, 2))
    objective = objective_of("malis")
    found = objective.value_and_gradient(*(np.stack(pair) for pair in zip(one, other, strict=True)))
    each = [objective.value_and_gradient(*(a[None] for a in case)) for case in (one, other)]
    assert found[0] == pytest.approx(np.mean([value for value, _ in each]))
    np.testing.assert_allclose(found[1], np.concatenate([g for _, g in each]) / 2)
    nothing, gradient = objective.value_and_gradient(*(a[None] for a in (*one[:2], 0 * one[2])))
    assert nothing == 0
    assert not gradient.any()
