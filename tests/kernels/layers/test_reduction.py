"""Sums over a block's voxels against NumPy."""

import numpy as np
import pytest
from znnpy_kernels.layers.reduction import sum_rows
from znnpy_kernels.simd.lanes import LANES


@pytest.mark.parametrize(("rows", "voxels"), [(1, 1), (3, 2), (2, 5), (4, 12)])
def test_sums_of_rows(rows: int, voxels: int) -> None:
    source = np.random.default_rng(0).standard_normal((2, rows, voxels + 1, LANES), np.float32)
    found = np.full(LANES + 1, 7, np.float32)
    channels = LANES - 1
    sum_rows.run(
        source=source, source_z=source[0].size, source_y=source[0, 0].size, partial=found,
        planes=2, rows=rows, length=voxels * LANES, channels=channels,
    )  # fmt: skip
    wanted = source[:, :, :voxels].astype(np.float64).sum((0, 1, 2))
    np.testing.assert_allclose(found[:channels], wanted[:channels], rtol=1e-5, atol=1e-5)
    assert found[channels:].tolist() == [0.0, 7.0]
