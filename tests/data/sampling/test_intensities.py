"""Changes of values beside scikit-image and SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import ndimage, special
from skimage import exposure, filters, transform
from znnpy_kernels.data.levels import changed_levels

from znnpy.data.sampling.intensities import bent, blurred, brightened, coarser, contrasted, noisy


@pytest.fixture
def image() -> np.ndarray:
    noise = np.random.default_rng(0).normal(size=(2, 9, 21, 24))
    return ndimage.gaussian_filter(noise, (0, 1, 1, 1)).astype(np.float32)


def test_contrast_is_about_each_channels_mean(image: np.ndarray) -> None:
    image = image + np.float32([[[[5]]], [[[-3]]]])
    exact = image.astype(np.float64)
    mean = exact.mean((1, 2, 3), keepdims=True)
    before = image.copy()
    assert contrasted(image, 1.7) is image
    assert np.allclose(image, mean + 1.7 * (exact - mean), atol=1e-5)
    assert np.array_equal(brightened(before.copy(), 0.5), before + np.float32(0.5))


@pytest.mark.parametrize("power", [0.5, 1.0, 2.2])
def test_gamma_is_scikit_images(image: np.ndarray, power: float) -> None:
    for channel, found in zip(image, bent(image.copy(), power), strict=True):
        low, high = float(channel.min()), float(channel.max())
        scaled = exposure.adjust_gamma((channel.astype(np.float64) - low) / (high - low), power)
        assert np.allclose(found, scaled * (high - low) + low, atol=1e-5)
    level = np.full((1, 2, 3, 4), 7, np.float32)
    assert np.allclose(bent(level, power), 7)


@pytest.mark.parametrize("sigmas", [(1.0, 1.0, 1.0), (0.0, 1.5, 1.5), (0.2, 0.7, 0.9)])
def test_blur_is_scikit_images(image: np.ndarray, sigmas: tuple[float, float, float]) -> None:
    for channel, found in zip(image, blurred(image.copy(), sigmas), strict=True):
        wanted = filters.gaussian(channel.astype(np.float64), sigmas, mode="nearest")
        assert np.allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("factors", [(1.0, 3.0, 3.0), (2.0, 2.0, 2.0), (1.5, 1.5, 2.4)])
def test_lower_resolution_is_scikit_images(
    image: np.ndarray, factors: tuple[float, float, float]
) -> None:
    for channel, found in zip(image, coarser(image.copy(), factors), strict=True):
        exact = channel.astype(np.float64)
        small = [round(n / factor) for n, factor in zip(exact.shape, factors, strict=True)]
        kept = transform.resize(exact, small, order=0, mode="edge", anti_aliasing=False)
        wanted = transform.resize(kept, exact.shape, order=3, mode="edge", anti_aliasing=False)
        assert np.allclose(found, wanted, atol=1e-4)


def test_lower_resolution_of_one_voxel_is_its_value() -> None:
    image = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    assert np.ptp(coarser(image.copy(), (1.0, 64.0, 64.0))) == 0
    assert np.array_equal(coarser(image.copy(), (1.0, 1.0, 1.0)), image)


@pytest.mark.parametrize("change", [contrasted, brightened, bent])
def test_sections_are_changed_as_images_of_their_own(image: np.ndarray, change: Any) -> None:
    numbers = np.linspace(0.6, 1.4, image.shape[1])
    found = change(image.copy(), numbers)
    for z, number in enumerate(numbers):
        wanted = change(image[:, z : z + 1].copy(), float(number))
        np.testing.assert_allclose(found[:, z : z + 1], wanted, atol=1e-6)


@pytest.mark.parametrize("wide", [0.0, 0.9])
def test_sections_are_blurred_each_by_itself(image: np.ndarray, wide: float) -> None:
    sigmas = np.linspace(0, 2, image.shape[1])
    found = blurred(image.copy(), (0.0, sigmas, wide * sigmas))
    for z, sigma in enumerate(sigmas):
        for channel, seen in zip(image, found, strict=True):
            exact = channel[z].astype(np.float64)
            wanted = ndimage.gaussian_filter(exact, (sigma, wide * sigma), mode="nearest")
            np.testing.assert_allclose(seen[z], wanted, atol=1e-6)


def test_blur_wider_than_the_image() -> None:
    image = np.random.default_rng(0).normal(size=(1, 2, 3, 5)).astype(np.float32)
    wanted = ndimage.gaussian_filter(image[0].astype(np.float64), (4, 4, 4), mode="nearest")
    np.testing.assert_allclose(blurred(image.copy(), (4, 4, 4))[0], wanted, atol=1e-6)


def test_sections_have_lower_resolution_each_by_itself(image: np.ndarray) -> None:
    factors = np.array([1.0, 1.2, 1.5, 2.0, 2.4, 3.0, 4.0, 8.0, 64.0])
    found = coarser(image.copy(), (1.0, factors, np.sqrt(factors)))
    for z, factor in enumerate(factors):
        wanted = coarser(image[:, z : z + 1].copy(), (1.0, float(factor), float(np.sqrt(factor))))
        np.testing.assert_allclose(found[:, z : z + 1], wanted, atol=1e-5)


def test_noise_is_normal() -> None:
    """By its moments and by SciPy's test of Kolmogorov and Smirnov, of 300,000 values."""
    from scipy import stats  # takes a second to load

    found = noisy(np.zeros((1, 3, 250, 401), np.float32), 1.0, np.array([5, 6, 7])).ravel()
    assert stats.kstest(found, "norm").pvalue > 0.01
    assert found.mean() == pytest.approx(0, abs=0.006)
    assert found.std() == pytest.approx(1, abs=0.004)
    assert stats.kurtosis(found) == pytest.approx(0, abs=0.03)
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 0.006


def test_noise_has_its_deviation_and_is_seeded(image: np.ndarray) -> None:
    blank, seeds = np.zeros((1, 40, 50, 61), np.float32), np.array([1, 2, -3])
    found = noisy(blank.copy(), 0.3, seeds)
    assert found.std() == pytest.approx(0.3, rel=0.01)
    assert abs(found.mean()) < 0.01
    assert np.array_equal(found, noisy(blank.copy(), 0.3, seeds))
    assert not np.array_equal(found, noisy(blank.copy(), 0.3, seeds + 1))
    np.testing.assert_allclose(noisy(blank + 2, 0.3, seeds), found + 2, atol=1e-6)


@pytest.mark.parametrize("count", [1, 4, 7, 1001])
def test_words_of_noise_are_numpys(count: int) -> None:
    """SFC64 by NumPy, with the same words at its beginning."""
    numpys = np.random.SFC64()
    state = numpys.state
    state["state"]["state"] = np.array([3, 1 << 40, 77, 1], np.uint64)
    numpys.state = state
    numpys.random_raw(12)
    words = numpys.random_raw(-(-count // 4))
    index = (words[:, None] >> np.array([0, 16, 32, 52], np.uint64)) & np.uint64(4095)
    if count % 4:
        index[-1] = (words[-1] >> np.array([0, 16, 32, 48], np.uint64)) & np.uint64(4095)
    places = (np.arange(4096) + 0.5) / 4096
    table = special.ndtri(places)
    found = noisy(np.zeros((1, 1, 1, count), np.float32), 1.0, np.array([3, 1 << 40, 77]))
    wanted = (table / table.std())[index.ravel()[:count].astype(int)]
    np.testing.assert_allclose(found.ravel(), wanted, atol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 7, 16, 33])
def test_levels_of_few_values(count: int) -> None:
    values = np.random.default_rng(count).normal(size=(1, 1, 1, count)).astype(np.float32)
    exact, mean = values.astype(np.float64), values.mean(dtype=np.float64)
    low, width = exact.min(), max(np.ptp(exact), 1e-7)
    changed_levels.run(values.copy(), 1, count, 0, np.array([0.5]), 1)
    np.testing.assert_allclose(contrasted(values.copy(), 0.5), (exact + mean) / 2, atol=1e-6)
    np.testing.assert_allclose(
        bent(values.copy(), 1.7), ((exact - low) / width) ** 1.7 * width + low, atol=1e-5
    )
