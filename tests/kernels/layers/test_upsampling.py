"""Images that grow by factors, and what comes back, against matrices along each axis."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from blocked_images import Blocked, blocks_of, normal, same_bits
from znnpy_kernels.layers.upsampling import upsample_backward, upsample_forward

Triple = tuple[int, int, int]
CASES = [
    ((3, 4, 5), (2, 2, 2)),
    ((2, 3, 7), (1, 2, 2)),
    ((3, 1, 4), (3, 2, 1)),
    ((1, 1, 1), (2, 3, 4)),
    ((2, 2, 1), (4, 5, 3)),
    ((4, 3, 2), (1, 1, 1)),
    ((1, 5, 6), (1, 1, 5)),
]


WAYS = [False, True]


def matrix(size: int, factor: int, linear: bool) -> Any:
    """What each large voxel takes of each small one."""
    if not linear:
        return np.repeat(np.eye(size), factor, axis=0)
    place = np.clip((np.arange(size * factor) + 0.5) / factor - 0.5, 0, size - 1)
    return np.maximum(0.0, 1.0 - np.abs(place[:, None] - np.arange(size)))


def along_axes(images: Any, matrices: Any) -> Any:
    return np.einsum("czyx,az,by,dx->cabd", images.astype(np.float64), *matrices)


def run(
    kernel: Any, small: Blocked, large: Blocked, factor: Triple, linear: bool, parts: Any
) -> None:
    made = large if kernel is upsample_forward else small
    sizes = dict(zip(("size_z", "size_y", "size_x"), small.shape, strict=True))
    factors = dict(zip(("factor_z", "factor_y", "factor_x"), factor, strict=True))
    for block, _ in blocks_of(made.channels):
        for z0, z1 in parts(made.shape[0]):
            for y0, y1 in parts(made.shape[1]):
                kernel.run(
                    **small.rows("small", block), **sizes, **large.rows("large", block), **factors,
                    linear=int(linear), z0=z0, z1=z1, y0=y0, y1=y1,
                )  # fmt: skip


def whole(size: int) -> Any:
    return [(0, size)]


def halves(size: int) -> Any:
    return list(pairwise(sorted({0, size // 2, size})))


@pytest.mark.parametrize("linear", WAYS)
@pytest.mark.parametrize(("size", "factor"), CASES)
def test_forward_in_any_parts(size: Triple, factor: Triple, linear: bool) -> None:
    images = normal(0, 19, *size)
    small = Blocked.of(images)
    grown = tuple(n * f for n, f in zip(size, factor, strict=True))
    found = [Blocked(19, grown) for _ in range(2)]
    for large, parts in zip(found, (whole, halves), strict=True):
        run(upsample_forward, small, large, factor, linear, parts)
        assert large.gaps_intact()
    expected = along_axes(images, [matrix(n, f, linear) for n, f in zip(size, factor, strict=True)])
    np.testing.assert_allclose(found[0].planar(), expected, rtol=1e-5, atol=1e-6)
    assert same_bits(found[0].planar(), found[1].planar())


@pytest.mark.parametrize("linear", WAYS)
@pytest.mark.parametrize(("size", "factor"), CASES)
def test_backward_is_the_adjoint_in_any_parts(size: Triple, factor: Triple, linear: bool) -> None:
    grown = tuple(n * f for n, f in zip(size, factor, strict=True))
    gradient = normal(1, 19, *grown)
    large = Blocked.of(gradient)
    found = [Blocked(19, size) for _ in range(2)]
    for small, parts in zip(found, (whole, halves), strict=True):
        run(upsample_backward, small, large, factor, linear, parts)
        assert small.gaps_intact()
    matrices = [matrix(n, f, linear).T for n, f in zip(size, factor, strict=True)]
    np.testing.assert_allclose(
        found[0].planar(), along_axes(gradient, matrices), rtol=1e-5, atol=1e-5
    )
    assert same_bits(found[0].planar(), found[1].planar())


def test_the_nearest_voxel_alone_is_read() -> None:
    images = normal(2, 3, 2, 2, 3)
    images[:, 1] = np.inf
    large = Blocked(3, (4, 4, 6))
    run(upsample_forward, Blocked.of(images), large, (2, 2, 2), False, whole)
    assert same_bits(large.planar(), images.repeat(2, 1).repeat(2, 2).repeat(2, 3))
