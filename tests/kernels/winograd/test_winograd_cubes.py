"""Filters of 3^3 in a march of whole tiles, and both gradients in one, against float64 NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from blocked_images import Blocked, normal, same_bits
from correlations import Triple, correlated
from filter_gradients import expected_gradient
from filter_points import aligned, points_of
from znnpy_kernels.direct.epilogue import PLAIN
from znnpy_kernels.direct.packed_filters import packed_size, unpack_filters
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd.both_gradients import NO_WEIGHTS
from znnpy_kernels.winograd.cubes import (
    CUBE,
    GROUP,
    cubes_floats,
    winograd_cubes,
    winograd_cubes_back,
)

ONE = (1, 1, 1)
CASES = [
    # Channels, voxels of the source, voxels of zeros before and behind it; tiles of a task along z and y.
    ((LANES, LANES), (10, 13, 17), (1, 1, 1), ((0, 3), (0, 4))),
    ((LANES + 3, 2), (5, 7, 4 * LANES + 1), (0, 2, 1), ((0, 1), (1, 2))),
    ((3, 2 * LANES + 1), (9, 4, 6), (2, 0, 0), ((1, 3), (0, 1))),
    # More tiles than are computed at once: two full groups.
    ((LANES, 2 * LANES), (3, 5, 8 * GROUP), (1, 1, 1), ((0, 1), (0, 2))),
]


class Cubes:
    """A pass from images that see zeros before and behind them."""

    def __init__(
        self, channels: tuple[int, int], extents: Triple, outside: Triple, tiles: Any
    ) -> None:
        inputs, outputs = channels
        self.filters = normal(2, outputs, inputs, *CUBE, scale=0.1)
        self.images = normal(1, inputs, *extents)
        self.padded = np.pad(self.images, [(0, 0), *((n, n) for n in outside)])
        self.sums = correlated(self.padded, self.filters, ONE)
        self.extents = self.sums.shape[1:]
        self.source, self.target = Blocked.of(self.images), Blocked(outputs, self.extents)
        self.points, ((z0, z1), (y0, y1)) = points_of(self.filters), tiles
        self.words: dict[str, Any] = {
            **PLAIN, **NO_WEIGHTS, **self.source.whole("source"), **self.target.whole("target"),
            **{f"source_size_{axis}": n for axis, n in zip("zyx", extents, strict=True)},
            **{f"target_size_{axis}": n for axis, n in zip("zyx", self.extents, strict=True)},
            **{f"before_{axis}": n for axis, n in zip("zyx", outside, strict=True)},
            **{f"dilation_{axis}": 1 for axis in "zyx"}, "accumulate": 0,
            "inputs": inputs, "blocks": -(-outputs // LANES), "filters": address(self.points),
            "z0": z0, "z1": z1, "y0": y0, "y1": y1,
            "scratch": aligned(cubes_floats(inputs, outputs, weights=True)), "scratch_worker": 0,
        }  # fmt: skip
        # What the task makes.
        self.own = np.zeros(self.extents, bool)
        self.own[4 * z0 : 4 * z1, 4 * y0 : 4 * y1] = True

    def made(self, expected: Any) -> Any:
        """The target, which is as expected and has nothing written between its blocks, nor beyond the task's tiles."""
        found, untouched = self.target.planar(), Blocked(1, self.extents).planar()[0]
        expected = np.where(self.own, expected, untouched)
        assert (
            np.abs(found - expected)[:, self.own].max()
            <= 1e-5 * np.abs(expected[:, self.own]).max()
        )
        assert np.array_equal(found[:, ~self.own], expected[:, ~self.own])
        assert self.target.gaps_intact()
        return np.where(self.own, found, 0)


@pytest.mark.quick(2)
@pytest.mark.parametrize("slope", [0.0, 0.25])
@pytest.mark.parametrize("case", CASES)
def test_forward(case: Any, slope: float) -> None:
    cubes, outputs = Cubes(*case), case[0][1]
    bias = normal(4, -(-outputs // LANES) * LANES)
    bias[outputs:] = 0
    winograd_cubes.run(**cubes.words | {"bias": bias, "slope": slope})
    expected = cubes.sums + bias[:outputs, None, None, None]
    cubes.made(np.where(expected > 0, expected, slope * expected))


def test_sums_of_before_are_added_to() -> None:
    cubes = Cubes(*CASES[0])
    before = normal(7, LANES, *cubes.extents)
    cubes.target = Blocked.of(before)
    winograd_cubes.run(**cubes.words | cubes.target.whole("target") | {"accumulate": 1})
    assert (
        np.abs(cubes.target.planar() - cubes.sums - before).max() <= 1e-5 * np.abs(cubes.sums).max()
    )


@pytest.mark.quick(2)
@pytest.mark.parametrize("slope", [0.0, 1.0])
@pytest.mark.parametrize("case", CASES)
def test_both_gradients(case: Any, slope: float) -> None:
    cubes, (inputs, outputs) = Cubes(*case), case[0]
    values = normal(3, outputs, *cubes.extents)
    seen = Blocked.of(values)
    sums = np.full(-(-outputs // LANES) * LANES, np.nan, np.float32)
    # Filters lead from the values to the images, whose gradient these are.
    packed = np.full(packed_size(inputs, outputs, 27) + LANES, np.nan, np.float32)
    words = cubes.words | {"slope": slope, "channels": outputs}
    words |= seen.whole("output") | seen.whole("values")
    winograd_cubes_back.run(**words | {"bias_gradient": sums, "weights": packed})
    found = cubes.made(np.where(values > 0, cubes.sums, slope * cubes.sums))
    added = found.sum((1, 2, 3), dtype=np.float64)
    assert np.abs(sums[:outputs] - added).max() <= 1e-4 * np.abs(added).max()
    assert np.isnan(packed[-LANES:]).all()
    weights = unpack_filters(packed[:-LANES], (inputs, outputs, *CUBE))
    wanted = expected_gradient(cubes.padded, np.where(cubes.own, values, 0), ONE)
    wanted = wanted.swapaxes(0, 1)[:, :, ::-1, ::-1, ::-1]
    assert np.abs(weights - wanted).max() <= 1e-5 * np.abs(wanted).max()
    # What is read of a tile may be overwritten by what is made of it.
    again = np.full_like(sums, np.nan), np.full_like(packed, np.nan)
    words |= seen.whole("target") | {"bias_gradient": again[0], "weights": again[1]}
    winograd_cubes_back.run(**words)
    over = np.where(cubes.own, seen.planar(), 0)
    assert all(map(same_bits, (over, *again), (found, sums, packed)))
    assert seen.gaps_intact()
