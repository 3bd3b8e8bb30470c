"""A strided filter is a sum of dense ones on the phases of its images."""

import numpy as np
import pytest
from correlation import correlated

from znnpy.plan.polyphase import phases_of, taps_from


def spread(filters, apart):
    """Filters with zeros between their taps."""
    shape = tuple((n - 1) * d + 1 for n, d in zip(filters.shape, apart, strict=True))
    found = np.zeros(shape)
    found[tuple(slice(None, None, d) for d in apart)] = filters
    return found


def every(first, step):
    return tuple(slice(f, None, s) for f, s in zip(first, step, strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_dense_filters_on_phases_add_up_to_a_strided_one(seed):
    rng = np.random.default_rng(seed)
    size, stride, dilation, places = (
        tuple(int(n) for n in rng.integers(1, top, 3)) for top in (8, 5, 5, 4)
    )
    reach = [
        (k - 1) * d + (n - 1) * s + 1
        for k, d, n, s in zip(size, dilation, places, stride, strict=True)
    ]
    image = rng.standard_normal([n + int(rng.integers(0, 3)) for n in reach])
    filters = rng.standard_normal(size)
    whole = correlated(image, spread(filters, dilation))
    wanted = whole[every((0, 0, 0), stride)][tuple(map(slice, places))]
    phases = phases_of(size, stride, dilation)
    assert len(phases.firsts()) == phases.count
    found, met = np.zeros(places), np.zeros(size, int)
    for first in phases.firsts():
        taps = filters[every(first, phases.step)]
        met[every(first, phases.step)] += 1
        assert taps.shape == taps_from(size, phases.step, first) <= phases.size
        part = image[every(phases.voxel(first), phases.stride)]
        dense = correlated(part, spread(taps, phases.dilation))
        found += dense[tuple(map(slice, places))]
    assert (met == 1).all()
    np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_without_a_stride_there_is_one_phase():
    phases = phases_of((3, 5, 1), (1, 1, 1), (2, 1, 4))
    assert not phases.split
    assert phases.count == 1
    assert (phases.size, phases.dilation) == ((3, 5, 1), (2, 1, 4))
