"""Lines of three taps along z, row by row: passes, and both gradients in one, against float64 NumPy."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from blocked_images import GUARD, Blocked, normal, same_bits
from correlations import Triple, correlated
from filter_gradients import expected_gradient
from filter_points import aligned, points_of
from znnpy_kernels.direct.epilogue import PLAIN
from znnpy_kernels.direct.packed_filters import packed_size, unpack_filters
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd.both_gradients import NO_WEIGHTS
from znnpy_kernels.winograd.forms import POINTS
from znnpy_kernels.winograd.lines import (
    SUMS_BYTES,
    lines_floats,
    winograd_lines,
    winograd_lines_back,
)
from znnpy_kernels.winograd.row_transforms import WIDE

LARGE = SUMS_BYTES // (POINTS * 4 * 8 * LANES) + 1
CASES = [
    # A row of several groups of tiles, and one of a voxel; planes that are no multiple of tiles; lattices; rows side
    # by side; more filters than stay in a cache.
    (LANES + 3, 2, (17, 2, 2 * WIDE + 1), 1, 2),
    (3, 3 * LANES, (9, 2, 1), 1, 2),
    (LANES, 2 * LANES + 1, (11, 2, 7), 2, 2),
    (3 * LANES, LANES, (6, 5, WIDE - 3), 1, 0),
    (8 * LANES, LARGE, (4, 1, 3), 1, 0),
]


class Lines:
    """A pass from images with zeros around them along z, as wide as keep their extents."""

    def __init__(self, inputs: int, outputs: int, extents: Triple, apart: int, gap: int) -> None:
        self.filters = normal(2, outputs, inputs, 3, 1, 1, scale=0.1)
        self.images, self.dilation = normal(1, inputs, *extents), (apart, 1, 1)
        self.padded = np.pad(self.images, [(0, 0), (apart, apart), (0, 0), (0, 0)])
        self.sums = correlated(self.padded, self.filters, self.dilation)
        self.source, self.target = Blocked.of(self.images, gap), Blocked(outputs, extents, gap)
        self.points = points_of(self.filters)
        self.words: dict[str, Any] = {
            **PLAIN, **NO_WEIGHTS, **self.source.whole("source"), **self.target.whole("target"),
            **{f"{it}_size_{axis}": n for it, (axis, n) in
               product(("source", "target"), zip("zyx", extents, strict=True))},
            **{f"dilation_{axis}": n for axis, n in zip("zyx", self.dilation, strict=True)},
            "before_z": apart, "before_y": 0, "before_x": 0, "accumulate": 0,
            "inputs": inputs, "blocks": -(-outputs // LANES), "filters": address(self.points),
            "z0": 0, "z1": -(-extents[0] // (4 * apart)) * apart, "y0": 0, "y1": extents[1],
            "scratch": aligned(lines_floats(inputs, outputs, weights=True)), "scratch_worker": 0,
        }  # fmt: skip

    def made(self, expected: Any) -> Any:
        """The target, which is as expected and has nothing written between its blocks."""
        found = self.target.planar()
        assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
        assert self.target.gaps_intact()
        return found

    def check_weights(self, packed: Any, values: Any) -> None:
        """Packed gradients of the filters that lead from values to the images, whose gradient these are."""
        assert np.isnan(packed[-LANES:]).all()
        inputs, outputs, taps = len(self.images), len(values), (3, 1, 1)
        weights = unpack_filters(packed[:-LANES], (inputs, outputs, *taps))
        wanted = expected_gradient(self.padded, values, self.dilation, taps)
        wanted = wanted.swapaxes(0, 1)[:, :, ::-1]
        assert np.abs(weights - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.quick(2)
@pytest.mark.parametrize("slope", [0.0, 0.25])
@pytest.mark.parametrize(("inputs", "outputs", "extents", "apart", "gap"), CASES)
def test_forward(
    inputs: int, outputs: int, extents: Triple, apart: int, gap: int, slope: float
) -> None:
    lines = Lines(inputs, outputs, extents, apart, gap)
    bias = normal(4, -(-outputs // LANES) * LANES)
    bias[outputs:] = 0
    winograd_lines.run(**lines.words | {"bias": bias, "slope": slope})
    expected = lines.sums + bias[:outputs, None, None, None]
    lines.made(np.where(expected > 0, expected, slope * expected))


@pytest.mark.quick(2)
@pytest.mark.parametrize("slope", [0.0, 1.0])
@pytest.mark.parametrize(("inputs", "outputs", "extents", "apart", "gap"), CASES)
def test_both_gradients(
    inputs: int, outputs: int, extents: Triple, apart: int, gap: int, slope: float
) -> None:
    lines = Lines(inputs, outputs, extents, apart, gap)
    values = normal(3, outputs, *extents)
    seen = Blocked.of(values, gap)
    sums = np.full(-(-outputs // LANES) * LANES, np.nan, np.float32)
    packed = np.full(packed_size(inputs, outputs, 3) + LANES, np.nan, np.float32)
    words = lines.words | {"slope": slope, "channels": outputs}
    words |= seen.whole("output") | seen.whole("values")
    winograd_lines_back.run(**words | {"bias_gradient": sums, "weights": packed})
    found = lines.made(np.where(values > 0, lines.sums, slope * lines.sums))
    added = found.sum((1, 2, 3), dtype=np.float64)
    assert np.abs(sums[:outputs] - added).max() <= 1e-4 * np.abs(added).max()
    lines.check_weights(packed, values)
    # What is read of a tile may be overwritten by what is made of it.
    again = np.full_like(sums, np.nan), np.full_like(packed, np.nan)
    words |= seen.whole("target") | {"bias_gradient": again[0], "weights": again[1]}
    winograd_lines_back.run(**words)
    assert all(map(same_bits, (seen.planar(), *again), (found, sums, packed)))
    assert seen.gaps_intact()


@pytest.mark.parametrize(("inputs", "outputs", "extents", "apart", "gap"), CASES[-2:])
def test_weight_gradient_alone(
    inputs: int, outputs: int, extents: Triple, apart: int, gap: int
) -> None:
    lines = Lines(inputs, outputs, extents, apart, gap)
    values = normal(3, outputs, *extents)
    packed = np.full(packed_size(inputs, outputs, 3) + LANES, np.nan, np.float32)
    winograd_lines_back.run(
        **lines.words | Blocked.of(values, gap).whole("values")
        | {"blocks": 0, "weights": packed, "channels": outputs}
    )  # fmt: skip
    lines.check_weights(packed, values)
    assert (lines.target.memory == GUARD).all()
