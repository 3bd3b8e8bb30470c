"""Runs of tiles side by side along x, worked out once, against correlation in float64 NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from blocked_images import Blocked, normal
from correlations import FLAT_PASSES, Triple, correlated
from filter_points import aligned, points_of
from znnpy_kernels.direct.epilogue import PLAIN
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd.forms import FORMS
from znnpy_kernels.winograd.runs import MOST

SLOPE = 0.25


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", FLAT_PASSES)
@pytest.mark.parametrize(
    ("inputs", "outputs", "extents"),
    [
        # More tiles along x than a run has, the last of them whole or not; a run that ends with its group of tiles.
        (LANES + 3, 2, (5, 6, 4 * MOST + 4)),
        (3, 3 * LANES, (6, 5, 4 * MOST + 7)),
        (2, LANES + 1, (7, 3, 19)),
        # Images of no more than a tile.
        (1, 1, (2, 2, 3)),
    ],
)
def test_data_gradients_from_padded_images(
    inputs: int, outputs: int, extents: Triple, name: str
) -> None:
    taps, kernel, floats = FLAT_PASSES[name]
    filters = normal(2, outputs, inputs, *taps, scale=0.1)
    before = [k // 2 for k in taps]
    images, values = normal(1, inputs, *extents), normal(3, outputs, *extents)
    around = [(0, 0), *((n, n) for n in before)]
    expected = correlated(np.pad(images, around), filters, (1, 1, 1))
    expected = np.where(values > 0, expected, SLOPE * expected)

    source, target, seen = Blocked.of(images), Blocked(outputs, extents), Blocked.of(values)
    form, points = FORMS[taps], points_of(filters)
    sums = np.full(-(-outputs // LANES) * LANES, np.nan, np.float32)
    sizes = {
        **{f"source_size_{axis}": n for axis, n in zip("zyx", extents, strict=True)},
        **{f"target_size_{axis}": n for axis, n in zip("zyx", extents, strict=True)},
        **{f"before_{axis}": n for axis, n in zip("zyx", before, strict=True)},
        "accumulate": 0,
        **{f"dilation_{axis}": 1 for axis in "zyx"},
    }
    kernel.run(
        **PLAIN
        | source.whole("source")
        | target.whole("target")
        | seen.whole("output")
        | sizes
        | {"inputs": inputs, "blocks": -(-outputs // LANES), "filters": address(points)}
        | {"slope": SLOPE, "bias_gradient": sums, "scratch_worker": 0}
        | {"scratch": aligned(floats(inputs, outputs))}
        | {"z0": 0, "z1": -(-extents[0] // form.new_z)}
        | {"y0": 0, "y1": -(-extents[1] // form.new_y)}
    )
    assert np.abs(target.planar() - expected).max() <= 1e-5 * np.abs(expected).max()
    assert target.gaps_intact()
    added = target.planar().sum((1, 2, 3), dtype=np.float64)
    assert np.abs(sums[:outputs] - added).max() <= 1e-4 * np.abs(added).max()
