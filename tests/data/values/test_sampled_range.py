"""Ranges of volumes by a bounded part of them."""

import numpy as np

from znnpy.data.values import sampled_range as glances
from znnpy.data.values.sampled_range import glance
from znnpy.data.volume import Array, ArrayVolume, Triple, Volume


class Steps(Volume):
    """Values rise with z; counts what is read."""

    def __init__(self, extent: Triple) -> None:
        super().__init__("steps", (1, *extent), np.dtype(np.uint16))
        self.voxels = 0

    def _read(self, lower: Triple, upper: Triple) -> Array:
        z, y, x = (b - a for a, b in zip(lower, upper, strict=True))
        self.voxels += z * y * x
        found = np.empty((1, z, y, x), np.uint16)
        found[:] = np.arange(lower[0], upper[0])[:, None, None]
        return found


def test_a_small_volume_is_read_whole() -> None:
    found = glance(Steps((30, 5, 5)))
    assert (found.lowest, found.highest, found.voxels, found.whole) == (0, 29, 750, True)


def test_each_channel_has_its_range() -> None:
    values = np.zeros((3, 2, 3, 3), np.float32)
    values[0, 0, 0, 0], values[0, 1] = np.nan, 5
    values[1], values[2] = np.nan, -7
    found = glance(ArrayVolume(values), finite=False)
    assert found.ranges[0] == (0, 5)
    assert np.isnan(found.ranges[1]).all()
    assert found.ranges[2] == (-7, -7)
    assert (found.lowest, found.highest) == (-7, 5)
    nothing = glance(ArrayVolume(values[1:2]), finite=False)
    assert np.isnan([nothing.lowest, nothing.highest]).all()


def test_of_a_large_one_a_part_from_end_to_end() -> None:
    volume = Steps((60_000, 40_000, 50_000))
    found = glance(volume)
    assert not found.whole
    assert (found.lowest, found.highest) == (0, 59_999)
    assert volume.voxels == found.voxels
    assert found.voxels == glances.BOXES * glances.SHALLOWEST * glances.LONGEST**2
