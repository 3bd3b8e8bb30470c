"""Winograd's minimal filtering against correlation in float64 NumPy."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from blocked_images import Blocked, normal
from correlations import FLAT_PASSES, Pass, Triple, correlated, operands
from filter_points import aligned
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd.early_requests import NEAR_BYTES
from znnpy_kernels.winograd.forms import FORMS
from znnpy_kernels.winograd.forward import WINOGRAD, scratch_floats


def run(
    images: Any, filters: Any, dilation: Triple, tiles: Any = None, name: str = "", **other: Any
) -> Blocked:
    """The kernel's output, by tasks of the given ranges (z0, z1, y0, y1) of tiles; `name`: of FLAT_PASSES."""
    given = Pass(images, filters, dilation)
    kernel, floats = WINOGRAD[given.taps], partial(scratch_floats, given.taps)
    if name:
        _, kernel, floats = FLAT_PASSES[name]
    room = aligned(floats(given.inputs, given.outputs))
    new = FORMS[given.taps].new_z, FORMS[given.taps].new_y
    z, y = (-(-n // (k * d)) * d for n, k, d in zip(given.extents, new, dilation, strict=False))
    words = given.words | {"filters": given.filters, "scratch": room} | other
    for z0, z1, y0, y1 in tiles or [(0, z, 0, y)]:
        kernel.run(**words | {"z0": z0, "z1": z1, "y0": y0, "y1": y1})
    return given.target


@pytest.mark.parametrize(
    ("inputs", "outputs", "shape", "dilation"),
    [
        (1, 1, (6, 6, 6), (1, 1, 1)),
        (3, 5, (7, 8, 9), (1, 1, 1)),
        (12, 16, (14, 11, 40), (1, 1, 1)),
        (LANES + 3, 2 * LANES, (9, 10, 12), (1, 2, 1)),
        (16, 3 * LANES + 1, (11, 12, 13), (2, 1, 3)),
        (2, 2 * LANES + 1, (3, 3, 3), (1, 1, 1)),
        (5, 7, (20, 21, 22), (4, 4, 4)),
    ],
)
def test_correlates(inputs: int, outputs: int, shape: Triple, dilation: Triple) -> None:
    images, filters = operands(inputs, outputs, shape)
    expected = correlated(images, filters, dilation)
    found = run(images, filters, dilation)
    assert np.abs(found.planar() - expected).max() <= 1e-5 * np.abs(expected).max()
    assert (found.pad() == 0).all()
    assert found.gaps_intact()


@pytest.mark.quick(6)
@pytest.mark.parametrize("name", FLAT_PASSES)
@pytest.mark.parametrize(
    ("inputs", "outputs", "shape", "dilation"),
    [
        (3, 5, (3, 8, 9), (1, 1, 1)),
        (LANES + 3, 2 * LANES, (9, 10, 72), (1, 2, 1)),
        (16, 3 * LANES + 1, (11, 12, 13), (2, 1, 3)),
        (5, 7, (20, 21, 22), (4, 4, 4)),
    ],
)
def test_correlates_with_flat_filters(
    inputs: int, outputs: int, shape: Triple, dilation: Triple, name: str
) -> None:
    taps = FLAT_PASSES[name][0]
    images, filters = operands(inputs, outputs, shape, taps)
    # Along an axis of one tap every voxel is of one lattice.
    z, y, x = (d if k > 1 else 1 for d, k in zip(dilation, taps, strict=True))
    expected = correlated(images, filters, (z, y, x))
    found = run(images, filters, (z, y, x), name=name)
    assert np.abs(found.planar() - expected).max() <= 1e-5 * np.abs(expected).max()
    assert (found.pad() == 0).all()
    assert found.gaps_intact()


def test_adds_bias_and_applies_the_function() -> None:
    images, filters = operands(4, 5, (8, 8, 8))
    bias = np.zeros(-(-5 // LANES) * LANES, np.float32)
    bias[:5] = normal(3, 5)
    plain = correlated(images, filters, (1, 1, 1)) + bias[:5, None, None, None]
    for slope in (1.0, 0.0, 0.25):
        found = run(images, filters, (1, 1, 1), bias=bias, slope=slope).planar()
        expected = np.where(plain > 0, plain, slope * plain)
        assert np.abs(found - expected).max() <= 1e-5 * np.abs(plain).max()


def test_values_do_not_depend_on_tasks_or_on_what_lies_around() -> None:
    images, filters = operands(6, 8, (17, 22, 30))
    whole = run(images, filters, (1, 2, 1)).planar()
    tasks = [(z, z + 1, y, y + 2) for z in (3, 1, 0, 2) for y in (4, 0, 2)]
    assert np.array_equal(run(images, filters, (1, 2, 1), tasks).planar(), whole)
    # The same tile at another place of a longer source, in another group of tiles.
    rows = run(images[..., 12:], filters, (1, 2, 1)).planar()
    assert np.array_equal(rows, whole[..., 12:])


@pytest.mark.parametrize("dilation", [(1, 1, 1), (1, 2, 1)])
def test_rows_of_few_tiles_have_the_same_values_together_and_alone(dilation: Triple) -> None:
    # Fourteen tiles of two planes a row: two rows are a group, of seven, and of eight of which the last lies outside.
    images, filters = operands(LANES + 1, LANES, (2, 27, 28), (1, 3, 3))
    together = run(images, filters, dilation, name="whole planes")
    tasks = [(0, 2, row, row + 1) for row in range(8)]
    alone = run(images, filters, dilation, tasks, "whole planes")
    assert np.array_equal(together.planar(), alone.planar())
    expected = correlated(images, filters, dilation)
    assert np.abs(together.planar() - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", ["", *FLAT_PASSES])
def test_rows_that_are_asked_for_early_have_the_same_values(name: str) -> None:
    taps = FLAT_PASSES[name][0] if name else (3, 3, 3)
    # As many bytes with vectors of four floats.
    images, filters = operands(LANES + 3, 2 * LANES + 1, (max(8, 64 // LANES), 42, 44), taps)
    dilation = (1, 1, 1)
    far = run(images, filters, dilation, name=name)
    # What lies within the caches next to a core is not asked for: the last tiles along x alone.
    near = run(images[..., 32:], filters, dilation, name=name)
    assert far.memory.nbytes + Pass(images, filters, dilation).source.memory.nbytes > NEAR_BYTES
    assert np.array_equal(near.planar(), far.planar()[..., 32:])
    expected = correlated(images, filters, dilation)
    assert np.abs(far.planar() - expected).max() <= 1e-5 * np.abs(expected).max()
    assert far.gaps_intact()


def test_what_is_not_finite_stays_where_it_is_seen() -> None:
    images, filters = operands(3, 4, (6, 6, 14))
    images[1, 2, 2, 2] = np.inf
    found = run(images, filters, (1, 1, 1)).planar()
    assert not np.isfinite(found[..., :4]).any()
    assert np.isfinite(found[..., 4:]).all()
