"""Statistics of lanes: parts, their merging, and means far from 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from blocked_images import Blocked
from znnpy_kernels.layers import normalization_statistics
from znnpy_kernels.simd.lanes import LANES

EPSILON = 1e-5


def left(x: Any, cuts: int) -> Any:
    """What parts of the planes of images (channel, z, y, x) leave: [block][part][LEAF]."""
    source = Blocked.of(x.astype(np.float32))
    blocks, planes = -(-x.shape[0] // LANES), x.shape[1] // cuts
    leaves = np.zeros((blocks, cuts, normalization_statistics.LEAF))
    for block in range(blocks):
        for cut in range(cuts):
            normalization_statistics.lane_statistics.run(
                **source.rows("source", block, cut * planes), planes=planes, rows=x.shape[2],
                length=x.shape[3] * LANES, leaf=leaves[block, cut],
            )  # fmt: skip
    return leaves


def merged(leaves: Any, channels: int, size: int) -> tuple[Any, Any]:
    """Moments by channel and coefficients [scale, centre, bias] by channel, of one sample."""
    blocks, cuts = leaves.shape[:2]
    moments = np.zeros((blocks * LANES, normalization_statistics.MOMENTS))
    table = np.zeros((blocks, 3, LANES), np.float32)
    normalization_statistics.merged_statistics.run(
        leaves=leaves, image_step=leaves.nbytes, block_step=leaves[0].nbytes, cuts=cuts,
        samples=1, merged=1, channels=channels, size=size, bias=0, scale=0, shift=0,
        moments=moments, moments_step=moments.nbytes, epsilon=EPSILON,
        coefficients=table, coefficients_step=table.nbytes,
    )  # fmt: skip
    return moments[:channels], np.moveaxis(table, 1, -1).reshape(-1, 3)[:channels]


@pytest.mark.parametrize(("mean", "deviation"), [(0, 1), (1000, 1), (-1e6, 3), (2, 1e-6)])
@pytest.mark.parametrize(
    ("channels", "size", "width"), [(3, 1, 5), (3 * LANES // 2, 3, 4), (20, 20, 1)]
)
def test_moments(channels: int, size: int, width: int, mean: float, deviation: float) -> None:
    x = np.random.default_rng(0).standard_normal((channels, 4, 3, width)) * deviation + mean
    x = np.float64(x.astype(np.float32))
    moments, table = merged(left(x, 2), channels, size)
    groups = x.reshape(channels // size, -1)
    each = np.repeat(groups.mean(1), size), np.repeat(groups.var(1), size)
    near = {"rtol": 1e-12, "atol": 1e-7 * deviation}
    np.testing.assert_allclose(moments[:, 0], each[0], **near)
    np.testing.assert_allclose(moments[:, 1], 1 / np.sqrt(each[1] + EPSILON), rtol=2e-7)
    own = x.reshape(channels, -1)
    np.testing.assert_allclose(moments[:, 2], own.mean(1), **near)
    np.testing.assert_allclose(moments[:, 3], own.var(1, ddof=1), rtol=4e-7)
    unit = (own - table[:, 1:2]) * table[:, :1] + table[:, 2:]
    wanted = (own - each[0][:, None]) / np.sqrt(each[1] + EPSILON)[:, None]
    np.testing.assert_allclose(unit, wanted[:, : unit.shape[1]], rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("away", [1e3, 1e6])
def test_what_sums_are_about_may_lie_far_away(away: float) -> None:
    x = np.random.default_rng(0).standard_normal((3, 2, 6, 70))
    x[0, 0, 0, 0] = x[1, :, :, 0] = x[2, :, :, 32] = away
    x = np.float64(x.astype(np.float32))
    moments, _ = merged(left(x, 2), 3, 1)
    own = x.reshape(3, -1)
    assert (np.abs(moments[:, 0] - own.mean(1)) <= 1e-6 * own.std(1)).all()
    np.testing.assert_allclose(moments[:, 3], own.var(1, ddof=1), rtol=1e-5)


def test_nan_and_infinity_are_seen() -> None:
    for wrong in (np.nan, np.inf):
        x = np.ones((2, 2, 2, 2))
        x[1, 1, 1, 1] = wrong
        moments, table = merged(left(x, 2), 2, 1)
        assert np.isfinite(moments[0]).all()
        assert not np.isfinite(table[1] @ [1.0, 1.0, 1.0])
