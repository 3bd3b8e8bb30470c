"""Winograd between planar channels against float64 NumPy, in arrays and scratch that have no float to spare."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from blocked_images import normal, same_bits
from correlations import correlated, operands, valid
from filter_points import points_of
from znnpy_kernels.direct.epilogue import PLAIN
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd.planar import WINOGRAD_PLANAR, planar_scratch_floats
from znnpy_kernels.winograd.planar_back import WINOGRAD_PLANAR_BACK, planar_back_floats
from znnpy_kernels.winograd.planar_gradient import WINOGRAD_PLANAR_GRADIENT, planar_gradient_floats

Triple = tuple[int, int, int]
ONE: Triple = (1, 1, 1)
pytestmark = pytest.mark.skipif(LANES < 8, reason="vectors of four floats")

SHAPES = [(1, 1, 1), (5, 6, LANES - 1), (4, 9, LANES + 1), (2, 4, 3 * LANES), (62, 5, 7)]
"""Of targets: narrower than a unit, a little wider, whole groups, more groups than march together."""
IMAGES = [(1, 1), (3, 2), (1, LANES // 2), (LANES // 2, LANES // 2 - 1)]
TAPS = sorted(WINOGRAD_PLANAR)


class Scratch:
    """Aligned floats, NaN, and whether what lies around them still is."""

    def __init__(self, floats: int) -> None:
        self.room, self.floats = np.full(floats + 32, np.nan, np.float32), floats
        self.first = -address(self.room) % 64 // 4

    @property
    def place(self) -> Any:
        return address(self.room) + 4 * self.first

    def kept(self) -> bool:
        around = self.room[: self.first], self.room[self.first + self.floats :]
        return all(np.isnan(floats).all() for floats in around)


def image_words(name: str, images: Any) -> dict[str, Any]:
    """A planar image, its strides and its size."""
    block, z, y, _ = (n // 4 for n in images.strides)
    words = {name: images, f"{name}_block": block, f"{name}_z": z, f"{name}_y": y}
    return words | sizes(f"{name}_size", images.shape[1:])


def seen_words(values: Any) -> dict[str, Any]:
    """Values and signs, which have the target's sizes."""
    found = image_words("values", values) | image_words("output", values)
    return {word: value for word, value in found.items() if "_size_" not in word}


def sizes(name: str, values: Any) -> dict[str, int]:
    return {f"{name}_{axis}": n for axis, n in zip("zyx", values, strict=True)}


def tiles(shape: Triple, taps: Triple, cut: bool) -> list[dict[str, int]]:
    """All tiles of a target as one task, or as one for each row of tiles."""
    z, y = (-(-n // (4 if k > 1 else 1)) for n, k in zip(shape[:2], taps[:2], strict=True))
    if not cut:
        return [{"z0": 0, "z1": z, "y0": 0, "y1": y}]
    return [{"z0": a, "z1": a + 1, "y0": b, "y1": b + 1} for a in range(z) for b in range(y)]


@pytest.mark.quick(6)
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("images", IMAGES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("taps", TAPS)
def test_correlates_within_its_arrays(
    taps: Triple, shape: Triple, images: tuple[int, int], cut: bool
) -> None:
    inputs, outputs = images
    wide = tuple(n + k - 1 for n, k in zip(shape, taps, strict=True))
    source, filters = operands(inputs, outputs, wide, taps)  # type: ignore[arg-type]
    check(source, filters, (0, 0, 0), shape, cut)


@pytest.mark.parametrize("before", [(2, 2, 2), (1, 0, 1), (0, 1, 2)])
@pytest.mark.parametrize("shape", SHAPES[1:])
def test_zeros_lie_around_the_source(shape: Triple, before: Triple) -> None:
    taps = (3, 3, 3)
    wide = tuple(max(1, n + 2 - 2 * b) for n, b in zip(shape, before, strict=True))
    source, filters = operands(2, 3, wide, taps)  # type: ignore[arg-type]
    check(source, filters, before, shape, False)


def check(source: Any, filters: Any, before: Triple, shape: Triple, cut: bool) -> None:
    """Correlate a source with zeros around it, and compare."""
    outputs, inputs, *taps = filters.shape
    around = [
        (b, n + k - 1 - b - size)
        for b, n, k, size in zip(before, shape, taps, source.shape[1:], strict=True)
    ]
    seen = np.pad(source, [(0, 0), *((low, max(high, 0)) for low, high in around)])
    expected = correlated(seen, filters, ONE)[:, : shape[0], : shape[1], : shape[2]]
    assert valid(seen.shape[1:], taps, ONE) >= shape
    target = np.full((outputs, *shape), np.nan, np.float32)
    scratch = Scratch(planar_scratch_floats(tuple(taps), inputs, outputs))
    source = np.ascontiguousarray(source, np.float32)
    words = (
        image_words("source", source) | image_words("target", target) | PLAIN | sizes("dilation", ONE)
        | sizes("before", before)
        | {"inputs": inputs, "blocks": outputs, "filters": address(points_of(filters)), "accumulate": 0,
           "scratch": scratch.place, "scratch_worker": 0}
    )  # fmt: skip
    for task in tiles(shape, tuple(taps), cut):
        WINOGRAD_PLANAR[tuple(taps)].run(**words | task)
    assert np.abs(target - expected).max() <= 1e-5 * max(np.abs(expected).max(), 1e-3)
    assert scratch.kept()


@pytest.mark.quick(6)
@pytest.mark.parametrize("around", [0, 1])
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("images", IMAGES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("taps", TAPS)
def test_filter_gradients_within_their_arrays(
    taps: Triple, shape: Triple, images: tuple[int, int], cut: bool, around: int
) -> None:
    inputs, outputs = images
    # Zeros on both sides, where filters reach beyond the source.
    before = tuple(around if k > 1 and n > 1 else 0 for n, k in zip(shape, taps, strict=True))
    wide = (n + k - 1 - 2 * b for n, k, b in zip(shape, taps, before, strict=True))
    inner = np.ascontiguousarray(normal(1, inputs, *wide), np.float32)
    source = np.pad(inner, [(0, 0), *((b, b) for b in before)])
    gradient = normal(2, outputs, *shape)
    # The same sums as of a correlation of each input with each output's gradient.
    expected = np.stack(
        [correlated(source[:, None][i], gradient[:, None], ONE) for i in range(inputs)], 1
    )
    scratch = Scratch(planar_gradient_floats(taps, inputs, outputs))
    total = np.zeros((inputs, prod(taps), LANES))
    for task in tiles(shape, taps, cut):
        made = np.full((inputs, prod(taps), LANES), np.nan, np.float32)
        words = image_words("source", inner) | image_words("gradient", gradient)
        words |= (
            sizes("dilation", ONE)
            | sizes("before", before)
            | {"inputs": inputs, "blocks": outputs, "width": LANES}
        )
        words |= {"target": made, "scratch": scratch.place, "scratch_worker": 0}
        WINOGRAD_PLANAR_GRADIENT[taps].run(**words | task)
        total += made
    found = np.moveaxis(total[..., :outputs], -1, 0).reshape(outputs, inputs, *taps)
    assert (
        np.abs(found - expected).max()
        <= 1e-5 * np.abs(expected).max() * max(1, prod(shape)) ** 0.25
    )
    assert (total[..., outputs:] == 0).all()
    assert scratch.kept()


@pytest.mark.quick(6)
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("images", IMAGES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("taps", TAPS)
def test_both_gradients_within_their_arrays(
    taps: Triple, shape: Triple, images: tuple[int, int], cut: bool
) -> None:
    """From a gradient to one of values, whose relu it passes, and to filters."""
    inputs, outputs = images
    # Zeros before the gradient and behind it.
    before = tuple(1 if k > 1 and n > 1 else 0 for n, k in zip(shape, taps, strict=True))
    wide = tuple(n + k - 1 - 2 * b for n, k, b in zip(shape, taps, before, strict=True))
    gradient, filters = operands(inputs, outputs, wide, taps)  # type: ignore[arg-type]
    gradient, values = np.ascontiguousarray(gradient, np.float32), normal(3, outputs, *shape)
    padded = np.pad(gradient, [(0, 0), *((b, b) for b in before)])
    back = np.where(values > 0, correlated(padded, filters, ONE), 0)
    # Filters lead from the values to the gradient's channels, and its voxels meet them in reverse.
    weights = np.stack(
        [correlated(padded[:, None][i], values[:, None], ONE) for i in range(inputs)]
    )[:, :, ::-1, ::-1, ::-1]
    target = np.full((outputs, *shape), np.nan, np.float32)
    scratch = Scratch(planar_back_floats(taps, inputs, outputs))
    words = image_words("source", gradient) | image_words("target", target) | PLAIN
    words |= seen_words(values)
    own = values.copy()
    place = {"target": own} | seen_words(own)
    words |= sizes("dilation", ONE) | sizes("before", before) | {"accumulate": 0, "slope": 0.0}
    words |= {"inputs": inputs, "blocks": outputs, "channels": outputs, "width": LANES}
    words |= {"filters": address(points_of(filters)), "scratch": scratch.place, "scratch_worker": 0}
    total, added = np.zeros((outputs, prod(taps), LANES)), np.zeros((outputs, LANES))
    for task in tiles(shape, taps, cut):
        made = np.full((outputs, prod(taps), LANES), np.nan, np.float32)
        sums = np.full((outputs, LANES), np.nan, np.float32)
        WINOGRAD_PLANAR_BACK[taps].run(**words | task | {"weights": made, "bias_gradient": sums})
        total += made
        added += sums
        # What is read of a tile may be overwritten by what is made of it.
        again = np.full_like(made, np.nan), np.full_like(sums, np.nan)
        here = task | {"weights": again[0], "bias_gradient": again[1]}
        WINOGRAD_PLANAR_BACK[taps].run(**words | place | here)
        assert all(map(same_bits, again, (made, sums)))
    assert same_bits(own, target)
    assert np.abs(target - back).max() <= 1e-5 * max(np.abs(back).max(), 1e-3)
    bias = back.sum((1, 2, 3))
    assert np.abs(added.sum(1) - bias).max() <= 1e-4 * np.abs(back).sum((1, 2, 3)).max()
    found = np.moveaxis(total[..., :inputs], -1, 0).reshape(inputs, outputs, *taps)
    room = 1e-5 * np.abs(weights).max() * max(1, prod(shape)) ** 0.25
    assert np.abs(found - weights).max() <= room
    assert (total[..., inputs:] == 0).all()
    assert scratch.kept()
