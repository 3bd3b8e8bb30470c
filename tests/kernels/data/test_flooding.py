"""Flooding from seeds beside scikit-image's watershed, whose order of equal voxels is kept."""

from __future__ import annotations

import numpy as np
import pytest
from skimage.segmentation import watershed
from znnpy_kernels.data.flooding import flood


def flooded(height: np.ndarray, seeds: np.ndarray, inside: np.ndarray) -> np.ndarray:
    labels = seeds.copy()
    queue = [np.empty(height.size, kind) for kind in (np.float32, np.int64, np.int64)]
    flood.run(height, inside.astype(np.uint8), labels, *height.shape, *queue)
    return labels


@pytest.mark.parametrize("levels", [1, 2, 5, 256, 10**6])
@pytest.mark.parametrize("seeded", [0.01, 0.2, 0.7])
@pytest.mark.parametrize("share", [0.6, 1.0])
def test_it_is_the_watershed(levels: int, seeded: float, share: float) -> None:
    rng = np.random.default_rng([levels, int(100 * seeded)])
    for _ in range(10):
        shape = tuple(rng.integers(1, 12, 3))
        height = (rng.integers(0, levels, shape) / levels).astype(np.float32)
        inside = rng.random(shape) <= share
        drawn = rng.random(shape) < seeded
        seeds = np.where(drawn & inside, rng.integers(1, 9, shape), 0).astype(np.int32)
        found = flooded(height, seeds, inside)
        assert np.array_equal(found, watershed(height, seeds, mask=inside))


def test_nothing_is_sown() -> None:
    height = np.zeros((2, 3, 4), np.float32)
    nothing = np.zeros((2, 3, 4), np.int32)
    assert not flooded(height, nothing, np.ones((2, 3, 4), bool)).any()
