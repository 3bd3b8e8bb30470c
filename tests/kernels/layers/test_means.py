"""Sums of parts and means at every voxel against NumPy float64."""

from __future__ import annotations

import numpy as np
import pytest
from blocked_images import normal
from znnpy_kernels.layers.means import lane_sums, spread_mean
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES


@pytest.mark.parametrize("width", [1, 31, 32, 33, 70])
def test_means_of_two_parts(width: int) -> None:
    planes, rows, row = 3, 2, width * LANES
    values = normal(0, planes, rows, row) + np.float32(100)
    leaves, found = np.zeros((2, LANES)), np.zeros_like(values)
    for part, (low, high) in enumerate(((0, 1), (1, 3))):
        lane_sums.run(
            source=address(values) + 4 * low * rows * row, source_z=rows * row, source_y=row,
            leaf=address(leaves) + 8 * part * LANES, planes=high - low, rows=rows, length=row,
        )  # fmt: skip
    spread_mean.run(
        leaves=address(leaves), parts=2, voxels=planes * rows * width, target=address(found),
        target_z=rows * row, target_y=row, planes=planes, rows=rows, length=row,
    )  # fmt: skip
    lanes = values.astype(np.float64).reshape(-1, LANES)
    np.testing.assert_allclose(leaves.sum(axis=0), lanes.sum(axis=0), rtol=1e-6)
    wanted = np.broadcast_to(lanes.mean(axis=0), lanes.shape)
    np.testing.assert_allclose(found.reshape(-1, LANES), wanted, rtol=1e-6)
