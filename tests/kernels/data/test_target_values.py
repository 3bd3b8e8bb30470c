"""The compiled look at targets beside NumPy's of each loss's reading."""

import numpy as np
import pytest
from znnpy_kernels.data.target_values import all_taken
from znnpy_kernels.simd.lanes import LANES

from znnpy.learning.readings import CLASSES, LOGITS, VALUES


def looked(taken, values):
    samples, channels, *shape = values.shape
    return bool(all_taken(values.ctypes.data, samples, channels, np.prod(shape), *taken.bounds))


@pytest.mark.parametrize("voxels", [1, LANES - 1, LANES, 3 * LANES + 1])
@pytest.mark.parametrize("wrong", [None, np.nan, np.inf, -np.inf, -0.01, 1.01, 0.4, 3e38])
def test_every_place_is_looked_at(voxels, wrong):
    rng = np.random.default_rng(voxels)
    values = np.eye(3, dtype=np.float32)[rng.integers(0, 3, (2, voxels))].swapaxes(1, 2)
    good = np.ascontiguousarray(values)[:, :, None, None]
    for place in np.ndindex(*good.shape):
        one = good.copy()
        if wrong is not None:
            one[place] = wrong
        for reading in (VALUES, LOGITS, CLASSES):
            assert looked(reading.target, one) == reading.target.takes(one), (reading.name, place)
        assert looked(CLASSES.target, one) == (wrong is None)
