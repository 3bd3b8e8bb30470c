"""Local shape descriptors beside their definition: Gaussian filters of SciPy over coordinates, object by object."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from znnpy.data.sampling.augmentation import Turn
from znnpy.data.sampling.shape_descriptors import LsdTarget, descriptors


def by_scipy(ids: np.ndarray, sigma: tuple[float, float, float]) -> np.ndarray:
    """Sheridan et al. 2022: mean offset, covariance, correlations and size in a Gaussian window; float64."""

    def summed(array: np.ndarray) -> np.ndarray:
        filtered: np.ndarray = gaussian_filter(array, sigma, mode="constant", truncate=3.0)
        return filtered

    places = np.indices(ids.shape).astype(float)
    found = np.zeros((10, *ids.shape))
    for number in set(ids.ravel().tolist()) - {0}:
        own = (ids == number).astype(float)
        count = summed(own)
        some = np.where(count > 0, count, 1)
        mean = np.stack([summed(own * at) / some for at in places])
        second = {
            (a, b): summed(own * places[a] * places[b]) / some - mean[a] * mean[b]
            for a, b in itertools.combinations_with_replacement(range(3), 2)
        }
        spread = [np.maximum(second[a, a], 1e-3) for a in range(3)]
        channels = [(mean[a] - places[a]) / sigma[a] / 2 + 0.5 for a in range(3)]
        channels += [spread[a] / sigma[a] ** 2 for a in range(3)]
        channels += [
            second[a, b] / np.sqrt(spread[a] * spread[b]) / 2 + 0.5
            for a, b in ((0, 1), (0, 2), (1, 2))
        ]
        found += np.stack([*channels, count]) * own
    return np.clip(found, 0, 1)


def objects(seed: int = 0, shape: tuple[int, int, int] = (14, 17, 19)) -> np.ndarray:
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 5, [-(-n // 4) for n in shape])
    whole = np.kron(coarse, np.ones((4, 4, 4), int))[tuple(map(slice, shape))]
    whole[3, 5, 7] = 9  # of one voxel
    return whole.astype(np.uint32)


@pytest.mark.parametrize("sigma", [(2.0, 2.0, 2.0), (1.0, 3.5, 2.25), (10.0, 10.0, 10.0)])
def test_they_are_their_definition(sigma: tuple[float, float, float]) -> None:
    ids = objects()
    found = descriptors(ids, sigma)
    # The correlations of an object of few voxels are quotients of small differences.
    np.testing.assert_allclose(found, by_scipy(ids, sigma), rtol=0, atol=2e-6)
    assert not found[:, ids == 0].any()
    assert found.min() >= 0
    assert found.max() <= 1
    alone = found[:, 3, 5, 7]
    assert alone[:3] == pytest.approx(0.5)
    assert alone[6:9] == pytest.approx(0.5)


def test_values_do_not_depend_on_what_lies_beyond_the_margin() -> None:
    target = LsdTarget((1.0, 2.0, 1.5))
    ids = objects(1, (30, 40, 36))
    assert target.margin == 6
    cut = (slice(4, 26), slice(7, 33), slice(5, 31))
    part, _ = target.compute(ids[None][(slice(None), *cut)], np.ones((22, 26, 26), bool))
    inner = (slice(None), *(slice(6, -6),) * 3)
    wanted = descriptors(ids, target.sigma)[(slice(None), *cut)]
    np.testing.assert_allclose(part[inner], wanted[inner], atol=1e-6)
    narrow = descriptors(ids[cut], target.sigma)
    assert np.abs(narrow - wanted)[(slice(None), *(slice(5, -5),) * 3)].max() > 1e-4


def test_turned_objects_have_descriptors_of_their_own_axes() -> None:
    ids = objects(2)
    turn = Turn((True, False, False), (0, 2, 1))
    found = descriptors(turn.apply(ids), (2.0, 2.0, 2.0))
    before = turn.apply(descriptors(ids, (2.0, 2.0, 2.0)))
    solid = turn.apply(ids) > 0
    assert found[0][solid] == pytest.approx(1 - before[0][solid])
    assert found[1][solid] == pytest.approx(before[2][solid])
    assert found[4][solid] == pytest.approx(before[5][solid])


def test_what_is_unknown_weighs_nothing_and_belongs_to_no_object() -> None:
    ids = objects(3)
    known = np.ones(ids.shape, bool)
    known[:, :, 10:] = False
    target = LsdTarget((0.5, 0.5, 0.5))
    values, weights = target.compute(ids[None], known)
    assert values.shape == weights.shape == (10, *ids.shape)
    assert values.dtype == weights.dtype == np.float32
    assert np.array_equal(weights, np.broadcast_to(known, weights.shape))
    wanted = descriptors(ids[:, :, :10], target.sigma)
    inner = (slice(None), slice(2, -2), slice(2, -2), slice(2, 10))
    np.testing.assert_allclose(values[inner], wanted[inner], atol=1e-6)
    assert not target.compute(ids[None, :3, :3, :3], known[:3, :3, :3])[0].any()
