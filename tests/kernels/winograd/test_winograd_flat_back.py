"""Both gradients of filters of 1 x 3 x 3 taps in one task, by whole planes, against float64 NumPy."""

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
from znnpy_kernels.winograd.flat_back import flat_back_floats, winograd_flat_back
from znnpy_kernels.winograd.products import GROUP

TAPS = (1, 3, 3)
CASES = [
    # Channels of the gradient and of values, extents of values, voxels of zeros before the gradient, voxels from tap
    # to tap: several groups of tiles in two planes, less than a tile, lattices of five blocks.
    (LANES + 3, 2, (2, 5, 4 * GROUP + 1), (1, 1), 1),
    (3, 3 * LANES, (3, 4, 9), (2, 0), 1),
    (2 * LANES, LANES + 1, (1, 3, 2), (1, 2), 1),
    (4 * LANES + 1, 2 * LANES + 1, (1, 13, 11), (3, 2), 2),
]


@pytest.mark.quick(2)
@pytest.mark.parametrize("slope", [0.0, 1.0])
@pytest.mark.parametrize(("inputs", "outputs", "extents", "before", "apart"), CASES)
def test_both_gradients(
    inputs: int, outputs: int, extents: Triple, before: tuple[int, int], apart: int, slope: float
) -> None:
    filters = normal(2, outputs, inputs, *TAPS, scale=0.1)
    # Of the gradient as much as values meet: zeros lie before and behind.
    seen_y, seen_x = (n + 2 * apart - 2 * b for n, b in zip(extents[1:], before, strict=True))
    gradient, values = normal(1, inputs, extents[0], seen_y, seen_x), normal(3, outputs, *extents)
    padded = np.pad(gradient, [(0, 0), (0, 0), *((b, b) for b in before)])
    dilation = (1, apart, apart)
    sums = correlated(padded, filters, dilation)
    source, target, seen = Blocked.of(gradient), Blocked(outputs, extents), Blocked.of(values)
    points, sizes = points_of(filters), {"source": gradient.shape[1:], "target": extents}
    bias = np.full(-(-outputs // LANES) * LANES, np.nan, np.float32)
    # Filters lead from the values to what the gradient is of.
    packed = np.full(packed_size(inputs, outputs, 9) + LANES, np.nan, np.float32)
    words: dict[str, Any] = {
        **PLAIN, **source.whole("source"), **target.whole("target"), **seen.whole("output"),
        **seen.whole("values"),
        **{f"{it}_size_{axis}": n for it, size in sizes.items()
           for axis, n in zip("zyx", size, strict=True)},
        **{f"dilation_{axis}": n for axis, n in zip("zyx", dilation, strict=True)},
        **{f"before_{axis}": n for axis, n in zip("zyx", (0, *before), strict=True)},
        "accumulate": 0, "inputs": inputs, "blocks": -(-outputs // LANES), "channels": outputs,
        "filters": address(points), "slope": slope, "bias_gradient": bias, "weights": packed,
        "z0": 0, "z1": extents[0], "y0": 0, "y1": -(-extents[1] // (4 * apart)) * apart,
        "scratch": aligned(flat_back_floats(inputs, outputs)), "scratch_worker": 0,
    }  # fmt: skip
    winograd_flat_back.run(**words)
    found, expected = target.planar(), np.where(values > 0, sums, slope * sums)
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
    assert target.gaps_intact()
    added = found.sum((1, 2, 3), dtype=np.float64)
    assert np.abs(bias[:outputs] - added).max() <= 1e-4 * np.abs(added).max()
    assert np.isnan(packed[-LANES:]).all()
    weights = unpack_filters(packed[:-LANES], (inputs, outputs, *TAPS))
    wanted = expected_gradient(padded, values, dilation, TAPS)
    wanted = wanted.swapaxes(0, 1)[:, :, :, ::-1, ::-1]
    assert np.abs(weights - wanted).max() <= 1e-5 * np.abs(wanted).max()
    # What is read of a tile may be overwritten by what is made of it.
    again = np.full_like(bias, np.nan), np.full_like(packed, np.nan)
    words |= seen.whole("target") | {"bias_gradient": again[0], "weights": again[1]}
    winograd_flat_back.run(**words)
    assert all(map(same_bits, (seen.planar(), *again), (found, bias, packed)))
    assert seen.gaps_intact()
