"""Forward passes with strides of two by minimal filtering, against correlation in float64 NumPy."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from blocked_images import Blocked, normal
from filter_points import aligned, points_of
from znnpy_kernels.direct.epilogue import PLAIN
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd.strided import FLAT_GROUP, STRIDED, STRIDED_FILTERS, strided_floats
from znnpy_kernels.winograd.strided_lines import STRIDED_FORMS

Triple = tuple[int, int, int]
CUBE, FLAT = STRIDED_FORMS


def correlated(images: Any, filters: Any, zeros: Triple) -> Any:
    """Strided correlation among so many zeros before and after each axis, in float64."""
    taps = filters.shape[2:]
    wide = np.pad(images.astype(np.float64), [(0, 0), *((n, n) for n in zeros)])
    strides = [2 if k == 3 else 1 for k in taps]
    extents = [(n - k) // s + 1 for n, k, s in zip(wide.shape[1:], taps, strides, strict=True)]
    total = np.zeros((filters.shape[0], *extents))
    for at in product(*map(range, taps)):
        cut = (slice(t, t + s * n, s) for t, s, n in zip(at, strides, extents, strict=True))
        seen = wide[:, *cut][:, : extents[0], : extents[1], : extents[2]]
        total += np.einsum("oi,izyx->ozyx", filters[:, :, *at].astype(np.float64), seen)
    return total


def run(images: Any, filters: Any, zeros: Triple, tasks: Any = None, **other: Any) -> Blocked:
    """The kernel's output, by tasks of the given ranges (z0, z1, y0, y1, block0, block1)."""
    outputs, inputs, *taps = filters.shape
    form, blocks = STRIDED_FORMS[tuple(taps)], -(-outputs // LANES)
    extents = correlated(images[:1], filters[:1, :1], zeros).shape[1:]
    source, target = Blocked.of(images), Blocked(outputs, extents)
    target.view[:] = other.pop("there", 0.0)
    points, room = (
        points_of(filters, STRIDED_FILTERS),
        aligned(strided_floats(tuple(taps), inputs, outputs)),
    )
    words = {
        **source.whole("source"), **target.whole("target"), "inputs": inputs, "blocks": blocks, **PLAIN,
        **{f"source_size_{axis}": n for axis, n in zip("zyx", images.shape[1:], strict=True)},
        **{f"target_size_{axis}": n for axis, n in zip("zyx", extents, strict=True)},
        **{f"dilation_{axis}": 1 for axis in "zyx"}, "accumulate": 0, "scratch": room, "scratch_worker": 0,
        **{f"before_{axis}": n for axis, n in zip("zyx", zeros, strict=True)}, "filters": address(points),
    }  # fmt: skip
    z, y = -(-extents[0] // form.new_z), -(-extents[1] // form.new_y)
    for z0, z1, y0, y1, block0, block1 in tasks or [(0, z, 0, y, 0, blocks)]:
        own = {"z0": z0, "z1": z1, "y0": y0, "y1": y1, "block0": block0, "block1": block1}
        STRIDED[tuple(taps)].run(**words | own | other)
    return target


def close(found: Blocked, expected: Any) -> None:
    assert np.abs(found.planar() - expected).max() <= 1e-5 * np.abs(expected).max()
    assert (found.pad() == 0).all()
    assert found.gaps_intact()


@pytest.mark.parametrize(
    ("inputs", "outputs", "shape", "zeros", "taps"),
    [
        (1, 1, (9, 9, 9), (0, 0, 0), CUBE),
        (LANES + 3, 2 * LANES + 1, (8, 11, 18), (1, 1, 1), CUBE),
        (5, 7, (3, 4, 5), (1, 0, 1), CUBE),
        (2 * LANES, 5 * LANES, (2, 12, 9), (1, 1, 1), CUBE),
        (3, 5, (3, 8, 9), (0, 1, 1), FLAT),
        (LANES + 3, 4 * LANES, (2, 17, 4 * FLAT_GROUP + 7), (0, 1, 1), FLAT),
        (2 * LANES, 3 * LANES, (2, 5, 4), (0, 0, 1), FLAT),
    ],
)
def test_correlates(inputs: int, outputs: int, shape: Triple, zeros: Triple, taps: Triple) -> None:
    images, filters = normal(1, inputs, *shape), normal(2, outputs, inputs, *taps, scale=0.1)
    close(run(images, filters, zeros), correlated(images, filters, zeros))


def test_tasks_give_the_same_bits_however_they_are_cut() -> None:
    images, filters = normal(1, 9, 17, 34, 21), normal(2, 5 * LANES, 9, *CUBE, scale=0.1)
    whole = run(images, filters, (1, 1, 1))
    blocks = [(0, 2), (2, 5)]
    cuts = [(z, z + 1, *y, *own) for z in range(3) for y in ((0, 2), (2, 5)) for own in blocks]
    parts = run(images, filters, (1, 1, 1), cuts)
    assert (parts.planar() == whole.planar()).all()


@pytest.mark.parametrize("taps", STRIDED_FORMS)
def test_adds_bias_and_function_to_what_is_there(taps: Triple) -> None:
    images, filters = normal(1, 9, 6, 11, 13), normal(2, LANES + 2, 9, *taps, scale=0.1)
    zeros = (taps[0] // 2, 1, 1)
    bias = aligned(2 * LANES)
    bias[:] = 0
    bias[: LANES + 2] = normal(3, LANES + 2)
    found = run(images, filters, zeros, there=2.0, accumulate=1, bias=address(bias), slope=0.25)
    sums = correlated(images, filters, zeros) + 2 + bias[: LANES + 2, None, None, None]
    expected = np.where(sums > 0, sums, 0.25 * sums)
    assert np.abs(found.planar() - expected).max() <= 1e-5 * np.abs(expected).max()
    assert found.gaps_intact()
