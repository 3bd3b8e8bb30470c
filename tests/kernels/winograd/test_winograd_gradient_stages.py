"""Filter gradients by Winograd's minimal filtering in two stages against sums in float64 NumPy."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from blocked_images import Blocked
from correlations import FLAT
from filter_gradients import K3, Triple, expected_gradient, operands
from filter_points import aligned
from znnpy_kernels.direct.packed_filters import pack_filters, packed_size, unpack_filters
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd.forms import FORMS
from znnpy_kernels.winograd.gradient_points import (
    GRADIENT_POINTS,
    SOURCE_POINTS,
    block_floats,
    points_scratch_floats,
)
from znnpy_kernels.winograd.gradient_sums import WINOGRAD_GRADIENT_SUMS, sums_floats


def words_of(name: str, sizes: Any) -> dict[str, int]:
    return {f"{name}_{axis}": size for axis, size in zip("zyx", sizes, strict=True)}


def run(pairs: Any, dilation: Triple, size: Triple = K3, rows: int = 0, before: Any = None) -> Any:
    """The sum over samples, source and gradient of each; points by tasks of `rows` rows of tiles and one block each.

    `before`: filters [output][input][z][y][x] that it is added to.
    """
    form, (source, gradient) = FORMS[size], pairs[0]
    extents, (inputs, outputs) = gradient.shape[1:], (len(source), len(gradient))
    new = form.new_z, form.new_y, form.new_x
    along = [-(-n // (k * d)) * d for n, k, d in zip(extents, new, dilation, strict=True)]
    begun = [
        [sum(t // d * k * d + t % d < n for t in tiles) for tiles in (range(m), *halves(m, rows))]
        for n, k, d, m in zip(extents, new, dilation, along, strict=True)
    ]
    total = len(pairs) * begun[0][0] * begun[1][0] * begun[2][0]
    scratch = aligned(max(points_scratch_floats(size), sums_floats(size, inputs, outputs)))
    words = {
        **words_of("gradient_size", extents),
        **words_of("dilation", dilation),
        "tiles": total,
        "scratch": scratch,
        "scratch_worker": 0,
        "z0": 0,
        "z1": along[0],
    }
    points, first = [], 0
    for images, kernel in ((0, SOURCE_POINTS), (1, GRADIENT_POINTS)):
        blocks, first = -(-len(pairs[0][images]) // LANES), 0
        points.append(aligned(blocks * block_floats(size, total)))
        for sample in pairs:
            blocked = Blocked.of(sample[images], 2)
            given = blocked.whole("images")
            for part, own in enumerate(halves(along[1], rows), 1):
                for block in reversed(range(blocks)):
                    kernel[size].run(
                        **words | given | words_of("images_size", sample[images].shape[1:]) | {
                            "images": given["images"] + 4 * block * given["images_block"],
                            "blocks": 1, "y0": own.start, "y1": own.stop, "first": first,
                            "target": address(points[-1]) + 4 * block * block_floats(size, total),
                        }
                    )  # fmt: skip
                first += begun[0][0] * begun[1][part] * begun[2][0]
    assert first == total
    made = np.full(packed_size(outputs, inputs, prod(size)) + LANES, np.nan, np.float32)
    if before is not None:
        made[:-LANES] = pack_filters(before)
    WINOGRAD_GRADIENT_SUMS[size].run(
        source=points[0], gradient=points[1], tiles=total, inputs=inputs, blocks=-(-outputs // LANES),
        target=made, adds=before is not None, scratch=scratch, scratch_worker=0,
    )  # fmt: skip
    assert np.isnan(made[-LANES:]).all()
    assert np.isfinite(made[:-LANES]).all()
    return unpack_filters(made[:-LANES], (outputs, inputs, *size))


def halves(tiles: int, rows: int) -> list[range]:
    """Tiles of two tasks, or of one."""
    return [range(rows), range(rows, tiles)] if 0 < rows < tiles else [range(tiles)]


LAYERS = [
    (1, 1, (1, 1, 1), (1, 1, 1)),
    (1, 1, (4, 4, 4), (1, 1, 1)),
    (3, 5, (5, 6, 7), (1, 2, 1)),
    (LANES, LANES, (9, 12, 33), (1, 1, 1)),
    (LANES + 1, 2 * LANES + 1, (9, 8, 12), (2, 1, 3)),
    (3 * LANES - 2, 4 * LANES, (5, 4, 9), (1, 1, 1)),
    (12, 2 * LANES, (3, 17, 5), (4, 4, 4)),
]


@pytest.mark.parametrize(("inputs", "outputs", "shape", "dilation"), LAYERS)
def test_sums_products_of_all_tiles(
    inputs: int, outputs: int, shape: Triple, dilation: Triple
) -> None:
    images, gradients = operands(inputs, outputs, shape, dilation)
    wanted = expected_gradient(images, gradients, dilation)
    found = run([(images, gradients)], dilation)
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.quick(6)
@pytest.mark.parametrize("size", FLAT)
@pytest.mark.parametrize(("inputs", "outputs", "shape", "dilation"), LAYERS[2:])
def test_sums_products_of_flat_filters(
    inputs: int, outputs: int, shape: Triple, dilation: Triple, size: Triple
) -> None:
    z, y, x = (d if k > 1 else 1 for d, k in zip(dilation, size, strict=True))
    images, gradients = operands(inputs, outputs, shape, (z, y, x), size)
    wanted = expected_gradient(images, gradients, (z, y, x), size)
    found = run([(images, gradients)], (z, y, x), size)
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("size", [K3, (1, 3, 3), (3, 1, 1)])
def test_samples_and_rows_of_tiles_lie_side_by_side(size: Triple) -> None:
    z, y, x = (d if k > 1 else 1 for d, k in zip((1, 2, 1), size, strict=True))
    images, gradients = operands(LANES + 2, 5, (4, 14, 9), (z, y, x), size)
    others = [array[..., ::-1].copy() for array in (images, gradients)]
    wanted = expected_gradient(images, gradients, (z, y, x), size)
    wanted += expected_gradient(*others, (z, y, x), size)
    found = run([(images, gradients), others], (z, y, x), size, rows=2)
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("size", [K3, (1, 3, 3)])
def test_sums_are_added_to_those_before(size: Triple) -> None:
    images, gradients = operands(LANES + 2, 2 * LANES + 1, (4, 9, 7), (1, 1, 1), size)
    wanted = expected_gradient(images, gradients, (1, 1, 1), size)
    before = np.random.default_rng(3).standard_normal(wanted.shape).astype(np.float32)
    found = run([(images, gradients)], (1, 1, 1), size, before=before)
    assert np.abs(found - before - wanted).max() <= 1e-5 * np.abs(wanted).max()
