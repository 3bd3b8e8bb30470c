"""Kernels of norms over channels against their float64 definitions; pad lanes stay 0, whatever lies beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from znnpy_kernels.layers.tied_slopes import repeat_number, total_of_vectors
from znnpy_kernels.layers.voxel_normalization import (
    SUMS,
    merged_voxel_gradients,
    voxel_norm_backward,
    voxel_norm_forward,
)
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES

from znnpy.layers.channel_statistics import unit, unit_gradient
from znnpy.layers.types import Norm

SHAPE = (2, 3)  # planes, rows


def blocked(values: np.ndarray) -> np.ndarray:
    """(channel, z, y, x) as float32 [block][z][y][x][lane], pad lanes 0."""
    channels, *space = values.shape
    blocks = -(-channels // LANES)
    found = np.zeros((blocks * LANES, *space), np.float32)
    found[:channels] = values
    return np.ascontiguousarray(np.moveaxis(found.reshape(blocks, LANES, *space), 1, -1))


def plain(values: np.ndarray, channels: int) -> np.ndarray:
    """The channels of what `blocked` made, float64; the pad lanes must be 0."""
    whole = np.moveaxis(values, -1, 1).reshape(-1, *values.shape[1:-1]).astype(np.float64)
    assert not whole[channels:].any()
    return whole[:channels]


def strides(name: str, block: np.ndarray) -> dict[str, int]:
    _, planes, rows, width, lanes = block.shape
    row = width * lanes
    return {
        name: address(block), f"{name}_block": planes * rows * row, f"{name}_z": rows * row, f"{name}_y": row,
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["channel", "length"])
@pytest.mark.parametrize("channels", [3, LANES, LANES + 3, 3 * LANES - 1])
@pytest.mark.parametrize("width", [1, LANES + 3])
def test_values_and_gradients(kind: Any, channels: int, width: int) -> None:
    norm = Norm(kind, epsilon=0.5 if kind == "length" else 1e-5)
    rng = np.random.default_rng(channels + width)
    x, g = rng.normal(1, 2, (channels, *SHAPE, width)), rng.normal(size=(channels, *SHAPE, width))
    x[:, 0, 0, 0] *= 1e-2  # shorter than epsilon, of `length`
    bias, scale, shift = (rng.normal(size=channels).astype(np.float32) for _ in range(3))
    if kind == "length":
        bias[:] = 0
    packed = [blocked(array[:, None, None, None]) for array in (bias, scale, shift)]
    by = dict(zip(("bias", "scale", "shift"), map(address, packed), strict=True))
    source, gradient = blocked(x), blocked(g)
    found = np.full_like(source, np.nan)
    counted = {
        "channels": channels, "planes": SHAPE[0], "rows": SHAPE[1], "width": width,
        "centred": int(kind == "channel"), "epsilon": norm.epsilon,
    }  # fmt: skip
    ends = strides("source", source) | strides("target", found)
    voxel_norm_forward.run(**ends, **by, **counted)
    as32 = (x.astype(np.float32) + bias[:, None, None, None])[None].astype(np.float64)
    wanted = unit(as32, norm)[0] * scale[:, None, None, None] + shift[:, None, None, None]
    np.testing.assert_allclose(plain(found, channels), wanted, rtol=1e-4, atol=1e-4)

    sums = np.full(SUMS * len(source), np.nan)
    del by["shift"]
    ends = strides("source", source) | strides("gradient", gradient)
    voxel_norm_backward.run(**ends, **by, **counted, sums=address(sums))
    g32 = g.astype(np.float32).astype(np.float64)
    back = unit_gradient(as32, g32[None] * scale[:, None, None, None], norm)[0]
    np.testing.assert_allclose(
        plain(gradient, channels), back, rtol=1e-3, atol=1e-4 * abs(back).max()
    )
    made = np.zeros((3, channels), np.float32)
    # Two parts alike: sums double.
    leaves = np.concatenate([sums, sums])
    names = ("scale_gradient", "shift_gradient", "bias_gradient")
    merged_voxel_gradients.run(
        leaves=address(leaves), leaf_step=8 * len(sums), parts=2, channels=channels,
        **{name: address(made[i : i + 1]) for i, name in enumerate(names)},
    )  # fmt: skip
    over = (1, 2, 3)
    parts = ((g32 * unit(as32, norm)[0]).sum(over), g32.sum(over), back.sum(over))
    for one, other in zip(made, parts, strict=True):
        np.testing.assert_allclose(one, 2 * other, rtol=1e-4, atol=1e-3)


def test_a_number_for_all_lanes() -> None:
    source, target = np.array([3.5, 1], np.float32), np.zeros(LANES, np.float32)
    repeat_number.run(source=address(source), target=address(target))
    assert (target == 3.5).all()
    vectors = np.random.default_rng(0).normal(size=(5, LANES)).astype(np.float32)
    total_of_vectors.run(source=address(vectors), target=address(target), count=5)
    assert target[0] == pytest.approx(vectors.astype(np.float64).sum(), rel=1e-6)
    assert not target[1:].any()
