"""Filter gradients of few channels by Winograd's minimal filtering against sums in float64 NumPy."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from blocked_images import Blocked
from filter_gradients import Triple, expected_gradient, operands
from znnpy_kernels.direct.packed_filters import packed_size, unpack_filters
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd.early_requests import NEAR_BYTES
from znnpy_kernels.winograd.forms import FORMS
from znnpy_kernels.winograd.weight_gradient import (
    CACHED_SUMS,
    WINOGRAD_GRADIENT,
    gradient_floats,
)


def run(
    images: Any,
    gradients: Any,
    dilation: Triple,
    tiles: Any = None,
    size: Triple = (1, 3, 3),
    gap: int = 2,
) -> Any:
    """The sum over tasks of the given ranges (z0, z1, y0, y1) of tiles."""
    source, gradient = Blocked.of(images, gap), Blocked.of(gradients, gap)
    inputs, outputs = len(images), len(gradients)
    room = np.full(gradient_floats(size, inputs, outputs) + 16, np.nan, np.float32)
    room = room[-address(room) % 64 // 4 :]
    new, extents = (FORMS[size].new_z, FORMS[size].new_y), gradients.shape[1:3]
    z, y = (-(-n // (k * d)) * d for n, k, d in zip(extents, new, dilation, strict=False))
    total = np.zeros((outputs, inputs, *size))
    for z0, z1, y0, y1 in tiles or [(0, z, 0, y)]:
        made = np.full(packed_size(outputs, inputs, prod(size)) + LANES, np.nan, np.float32)
        WINOGRAD_GRADIENT[size].run(
            **source.whole("source"), **gradient.whole("gradient"),
            inputs=inputs, blocks=-(-outputs // LANES),
            **{f"source_size_{axis}": n for axis, n in zip("zyx", images.shape[1:], strict=True)},
            **{f"gradient_size_{axis}": n
               for axis, n in zip("zyx", gradients.shape[1:], strict=True)},
            **{f"dilation_{axis}": n for axis, n in zip("zyx", dilation, strict=True)},
            z0=z0, z1=z1, y0=y0, y1=y1,
            target=made, scratch=room, scratch_worker=0,
        )  # fmt: skip
        assert np.isnan(made[-LANES:]).all()
        assert np.isfinite(made[:-LANES]).all()
        total += unpack_filters(made[:-LANES], (outputs, inputs, *size))
    return total


@pytest.mark.quick(3)
@pytest.mark.parametrize("size", WINOGRAD_GRADIENT)
def test_tiles_that_are_asked_for_early_have_the_same_sums(size: Triple) -> None:
    images, gradients = operands(LANES + 2, LANES + 1, (5, 12, 33), (1, 1, 1), size)
    wide = max(16, 128 // LANES)  # as many bytes with vectors of four floats
    # Sums of these stay in a cache. What lies within the caches next to a core is not asked for; gaps between blocks
    # make it lie beyond.
    assert prod(FORMS[size][3:6]) * len(images) * 2 * 4 * LANES <= CACHED_SUMS
    near, far = (run(images, gradients, (1, 1, 1), size=size, gap=gap) for gap in (2, wide))
    assert Blocked.of(images, wide).memory.nbytes > NEAR_BYTES
    assert Blocked.of(images).memory.nbytes + Blocked.of(gradients).memory.nbytes < NEAR_BYTES
    assert np.array_equal(near, far)
    wanted = expected_gradient(images, gradients, (1, 1, 1), size)
    assert np.abs(far - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.quick(6)
@pytest.mark.parametrize("size", WINOGRAD_GRADIENT)
@pytest.mark.parametrize(
    ("inputs", "outputs", "shape", "dilation"),
    [
        (3, 5, (1, 6, 7), (1, 2, 1)),
        (LANES, LANES, (9, 12, 33), (1, 1, 1)),
        (LANES + 1, 2 * LANES + 1, (9, 8, 12), (2, 1, 3)),
        (12, 2 * LANES, (3, 17, 5), (4, 4, 4)),
    ],
)
def test_sums_products_of_flat_filters(
    inputs: int, outputs: int, shape: Triple, dilation: Triple, size: Triple
) -> None:
    z, y, x = (d if k > 1 else 1 for d, k in zip(dilation, size, strict=True))
    images, gradients = operands(inputs, outputs, shape, (z, y, x), size)
    wanted = expected_gradient(images, gradients, (z, y, x), size)
    found = run(images, gradients, (z, y, x), size=size)
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_tasks_take_the_tiles_that_they_are_told() -> None:
    size, dilation = (1, 3, 3), (1, 2, 1)
    images, gradients = operands(4, 6, (3, 14, 9), dilation, size)
    wanted = expected_gradient(images, gradients, dilation, size)
    tasks = [(z, z + 1, y, y + 2) for z in range(3) for y in (0, 2)]
    found = run(images, gradients, dilation, tasks, size)
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()
