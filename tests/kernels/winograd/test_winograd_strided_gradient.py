"""Filter gradients with strides of two by minimal filtering, against sums in float64 NumPy."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from blocked_images import Blocked, normal
from filter_points import aligned
from znnpy_kernels.direct.packed_filters import pack_filters, packed_size, unpack_filters
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd.gradient_sums import sums_floats
from znnpy_kernels.winograd.strided_gradient import (
    STRIDED_GRADIENT_POINTS,
    STRIDED_SOURCE_POINTS,
    STRIDED_SUMS,
    strided_block_floats,
    strided_points_floats,
)
from znnpy_kernels.winograd.strided_lines import STRIDED_FORMS

Triple = tuple[int, int, int]
CUBE, FLAT = STRIDED_FORMS


def expected_of(images: Any, given: Any, taps: Triple) -> Any:
    """Gradients of filters (output, input, z, y, x), in float64."""
    found = np.zeros((len(given), len(images), *taps))
    strides = [2 if k == 3 else 1 for k in taps]
    for at in product(*map(range, taps)):
        steps = zip(at, strides, given.shape[1:], strict=True)
        seen = images[:, *(slice(t, t + s * (n - 1) + 1, s) for t, s, n in steps)]
        found[:, :, *at] = np.einsum(
            "izyx,ozyx->oi", seen.astype(np.float64), given.astype(np.float64)
        )
    return found


def run(pairs: Any, taps: Triple, rows: int = 0, before: Any = None) -> Any:
    """The sum over samples, source and gradient of each; points by tasks of `rows` rows of tiles and one block each.

    `before`: filters [output][input][z][y][x] that it is added to.
    """
    source, gradient = pairs[0]
    extents, (inputs, outputs) = gradient.shape[1:], (len(source), len(gradient))
    along = [-(-n // (4 if k == 3 else 1)) for n, k in zip(extents, taps, strict=True)]
    total, points = len(pairs) * prod(along), []
    scratch = aligned(max(strided_points_floats(taps), sums_floats(taps, inputs, outputs)))
    words = {
        **{f"gradient_size_{axis}": n for axis, n in zip("zyx", extents, strict=True)},
        **{f"dilation_{axis}": 1 for axis in "zyx"},
        "tiles": total, "scratch": scratch, "scratch_worker": 0, "z0": 0, "z1": along[0],
    }  # fmt: skip
    parts = [range(along[1])]
    if rows:
        parts = [range(y, min(along[1], y + rows)) for y in range(0, along[1], rows)]
    for images, kernel in ((0, STRIDED_SOURCE_POINTS), (1, STRIDED_GRADIENT_POINTS)):
        blocks, first = -(-len(pairs[0][images]) // LANES), 0
        each = strided_block_floats(taps, total, of_source=images == 0)
        points.append(aligned(blocks * each))
        for sample in pairs:
            given = (blocked := Blocked.of(sample[images])).whole("images")
            sizes = zip("zyx", sample[images].shape[1:], strict=True)
            for own in parts:
                # Rows of several tasks lie side by side in each plane of tiles.
                assert not rows or along[0] == 1
                for block in reversed(range(blocks)):
                    kernel[taps].run(
                        **words | given | {f"images_size_{axis}": n for axis, n in sizes} | {
                            "images": blocked.address(block), "blocks": 1, "first": first,
                            "y0": own.start, "y1": own.stop,
                            "target": address(points[-1]) + 4 * block * each,
                        }
                    )  # fmt: skip
                    sizes = zip("zyx", sample[images].shape[1:], strict=True)
                first += along[0] * len(own) * along[2]
        assert first == total
    made = np.full(packed_size(outputs, inputs, prod(taps)) + LANES, np.nan, np.float32)
    if before is not None:
        made[:-LANES] = pack_filters(before)
    STRIDED_SUMS[taps].run(
        source=points[0], gradient=points[1], tiles=total, inputs=inputs, blocks=-(-outputs // LANES),
        target=made, adds=before is not None, scratch=scratch, scratch_worker=0,
    )  # fmt: skip
    assert np.isnan(made[-LANES:]).all()
    return unpack_filters(made[:-LANES], (outputs, inputs, *taps))


def close(found: Any, expected: Any) -> None:
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


def operands(inputs: int, outputs: int, extents: Triple, taps: Triple, seed: int = 0) -> Any:
    wide = [2 * n + 1 if k == 3 else n for n, k in zip(extents, taps, strict=True)]
    return normal(2 * seed, inputs, *wide), normal(2 * seed + 1, outputs, *extents)


@pytest.mark.parametrize(
    ("inputs", "outputs", "extents", "taps", "rows"),
    [
        (1, 1, (4, 4, 4), CUBE, 0),
        (LANES + 3, 2 * LANES + 1, (3, 5, 9), CUBE, 1),
        (2 * LANES, 3 * LANES, (5, 4, 2), CUBE, 0),
        (3, 5, (1, 9, 5), FLAT, 2),
        (LANES + 3, 4 * LANES, (3, 6, 13), FLAT, 0),
    ],
)
def test_sums(inputs: int, outputs: int, extents: Triple, taps: Triple, rows: int) -> None:
    images, given = operands(inputs, outputs, extents, taps)
    close(run([(images, given)], taps, rows), expected_of(images, given, taps))


@pytest.mark.parametrize("taps", STRIDED_FORMS)
def test_adds_several_samples_to_what_is_there(taps: Triple) -> None:
    pairs = [operands(5, LANES + 1, (2, 4, 6), taps, seed) for seed in range(3)]
    before = normal(9, LANES + 1, 5, *taps)
    expected = before + sum(expected_of(*pair, taps) for pair in pairs)
    close(run(pairs, taps, before=before), expected)
