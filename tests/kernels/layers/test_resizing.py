"""Images of any other size, and what comes back, against matrices along each axis that NumPy's interpolation makes."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import floor
from typing import Any

import numpy as np
import pytest
from blocked_images import Blocked, blocks_of, normal, same_bits
from znnpy_kernels.layers.resizing import WAYS, resize_backward, resize_forward

Triple = tuple[int, int, int]
CASES = [
    ((3, 4, 5), (4, 7, 5)),
    ((4, 3, 7), (3, 2, 9)),
    ((1, 1, 5), (3, 1, 8)),
    ((5, 2, 3), (1, 5, 1)),
    ((2, 3, 2), (4, 9, 8)),
    ((9, 1, 11), (2, 4, 3)),
]


def matrix(size: int, made: int, way: str) -> Any:
    """What each new voxel takes of each old one."""
    if way == "linear":
        place = (np.arange(made) + 0.5) * size / made - 0.5
    elif way == "corners":
        place = np.linspace(0, size - 1, made)
    else:
        half = Fraction(1, 2) if way == "nearest_exact" else 0
        return np.eye(size)[[floor((i + half) * Fraction(size, made)) for i in range(made)]]
    return np.stack([np.interp(place, np.arange(size), row) for row in np.eye(size)], axis=1)


def along_axes(images: Any, matrices: Any) -> Any:
    return np.einsum("czyx,az,by,dx->cabd", images.astype(np.float64), *matrices)


def run(kernel: Any, old: Blocked, new: Blocked, way: str, parts: Any) -> None:
    made = new if kernel is resize_forward else old
    sizes = dict(zip(("size_z", "size_y", "size_x"), old.shape, strict=True))
    sizes |= dict(zip(("made_z", "made_y", "made_x"), new.shape, strict=True))
    for block, _ in blocks_of(made.channels):
        for z0, z1 in parts(made.shape[0]):
            for y0, y1 in parts(made.shape[1]):
                kernel.run(
                    **old.rows("old", block), **new.rows("new", block), **sizes, way=WAYS[way],
                    z0=z0, z1=z1, y0=y0, y1=y1,
                )  # fmt: skip


def whole(size: int) -> Any:
    return [(0, size)]


def halves(size: int) -> Any:
    return list(pairwise(sorted({0, size // 2, size})))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("size", "made"), CASES)
def test_forward_in_any_parts(size: Triple, made: Triple, way: str) -> None:
    images = normal(1, 19, *size)
    old = Blocked.of(images)
    found = [Blocked(19, made) for _ in range(2)]
    for new, parts in zip(found, (whole, halves), strict=True):
        run(resize_forward, old, new, way, parts)
        assert new.gaps_intact()
    expected = along_axes(images, [matrix(n, m, way) for n, m in zip(size, made, strict=True)])
    np.testing.assert_allclose(found[0].planar(), expected, rtol=1e-5, atol=1e-6)
    assert same_bits(found[0].planar(), found[1].planar())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("size", "made"), CASES)
def test_backward_is_the_adjoint_in_any_parts(size: Triple, made: Triple, way: str) -> None:
    gradient = normal(1, 19, *made)
    new = Blocked.of(gradient)
    found = [Blocked(19, size) for _ in range(2)]
    for old, parts in zip(found, (whole, halves), strict=True):
        run(resize_backward, old, new, way, parts)
        assert old.gaps_intact()
    matrices = [matrix(n, m, way).T for n, m in zip(size, made, strict=True)]
    np.testing.assert_allclose(
        found[0].planar(), along_axes(gradient, matrices), rtol=1e-5, atol=1e-5
    )
    assert same_bits(found[0].planar(), found[1].planar())
