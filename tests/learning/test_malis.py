"""MALIS against its definition: for all pairs of voxels, the weakest edge on the best path."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from malis_by_pairs import brute
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
