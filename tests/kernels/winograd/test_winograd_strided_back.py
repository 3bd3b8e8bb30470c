"""Data gradients with strides of two by minimal filtering, against sums in float64 NumPy."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from blocked_images import Blocked, normal
from filter_points import aligned, exchanged_points_of
from znnpy_kernels.direct.epilogue import PLAIN
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd.strided import FLAT_GROUP
from znnpy_kernels.winograd.strided_back import (
    STRIDED_BACK,
    STRIDED_EXCHANGING,
    strided_back_floats,
)
from znnpy_kernels.winograd.strided_lines import STRIDED_FORMS

Triple = tuple[int, int, int]
CUBE, FLAT = STRIDED_FORMS


def gradients(given: Any, filters: Any, shape: Triple, zeros: Triple) -> Any:
    """Gradients of the voxels among so many zeros before each axis, in float64."""
    taps = filters.shape[2:]
    strides = [2 if k == 3 else 1 for k in taps]
    extents = zip(given.shape[1:], taps, strides, shape, zeros, strict=True)
    whole = [max((n - 1) * s + k, size + pad) for n, k, s, size, pad in extents]
    total = np.zeros((filters.shape[1], *whole))
    for at in product(*map(range, taps)):
        steps = zip(at, strides, given.shape[1:], strict=True)
        cut = tuple(slice(t, t + s * n, s) for t, s, n in steps)
        seen = np.einsum("oi,ozyx->izyx", filters[:, :, *at].astype(np.float64), given)
        total[:, *cut][:, : given.shape[1], : given.shape[2], : given.shape[3]] += seen
    return total[:, *(slice(pad, pad + size) for size, pad in zip(shape, zeros, strict=True))]


def run(
    given: Any, filters: Any, shape: Triple, zeros: Triple, tasks: Any = None, **other: Any
) -> Blocked:
    """The kernel's voxels, by tasks of the given ranges (z0, z1, y0, y1, block0, block1)."""
    outputs, inputs, *taps = filters.shape
    strided, blocks = [k == 3 for k in taps], -(-inputs // LANES)
    source, target = Blocked.of(given), Blocked(inputs, shape)
    values = other.pop("values", None)
    bias = other.pop("bias_gradient", None)
    points = exchanged_points_of(filters, STRIDED_EXCHANGING)
    room = aligned(strided_back_floats(tuple(taps), outputs, inputs))
    shift = [int(two and pad % 2 == 0) for two, pad in zip(strided, zeros, strict=True)]
    before = [-((pad - 1) // 2) if two else -pad for two, pad in zip(strided, zeros, strict=True)]
    words = {
        **source.whole("source"), "inputs": outputs, "blocks": blocks, **PLAIN, "scratch": room, "scratch_worker": 0,
        **{f"source_size_{axis}": n for axis, n in zip("zyx", given.shape[1:], strict=True)},
        **{f"target_size_{axis}": n for axis, n in zip("zyx", shape, strict=True)},
        **{f"shift_{axis}": n for axis, n in zip("zyx", shift, strict=True)},
        **{f"before_{axis}": n for axis, n in zip("zyx", before, strict=True)},
        **{f"dilation_{axis}": 1 for axis in "zyx"}, "accumulate": 0, "filters": address(points),
    }  # fmt: skip
    counts = [
        -(-(n + more) // 8) if two else n
        for n, more, two in zip(shape, shift, strided, strict=True)
    ]
    for z0, z1, y0, y1, block0, block1 in tasks or [(0, counts[0], 0, counts[1], 0, blocks)]:
        own = {"z0": z0, "z1": z1, "y0": y0, "y1": y1, "block0": block0, "block1": block1}
        own |= target.whole("target") | {"target": target.address(block0)}
        if values is not None:
            own |= values.whole("output") | {"output": values.address(block0)}
        if bias is not None:
            own["bias_gradient"] = address(bias) + 4 * LANES * block0
        STRIDED_BACK[tuple(taps)].run(**words | own | other)
    return target


def close(found: Blocked, expected: Any) -> None:
    assert np.abs(found.planar() - expected).max() <= 1e-5 * np.abs(expected).max()
    assert (found.pad() == 0).all()
    assert found.gaps_intact()


@pytest.mark.parametrize(
    ("outputs", "inputs", "extents", "shape", "zeros", "taps"),
    [
        (1, 1, (4, 4, 4), (9, 9, 9), (0, 0, 0), CUBE),
        (2 * LANES + 1, LANES + 3, (4, 6, 9), (8, 11, 18), (1, 1, 1), CUBE),
        (5, 7, (2, 1, 3), (4, 4, 5), (1, 0, 2), CUBE),
        (5 * LANES, 3 * LANES, (1, 6, 5), (2, 12, 10), (1, 1, 1), CUBE),
        (5, 3, (3, 4, 5), (3, 8, 9), (0, 1, 1), FLAT),
        (4 * LANES, LANES + 3, (2, 9, 2 * FLAT_GROUP + 3), (2, 17, 4 * FLAT_GROUP + 6), (0, 1, 1), FLAT),
        (3 * LANES, 2 * LANES, (4, 2, 2), (2, 5, 4), (1, 0, 1), FLAT),
    ],
)  # fmt: skip
def test_gradients(
    outputs: int, inputs: int, extents: Triple, shape: Triple, zeros: Triple, taps: Triple
) -> None:
    given, filters = normal(1, outputs, *extents), normal(2, outputs, inputs, *taps, scale=0.1)
    found = run(given, filters, shape, zeros)
    close(found, gradients(given, filters, shape, zeros))


def test_tasks_give_the_same_bits_however_they_are_cut() -> None:
    given, filters = normal(1, 9, 9, 17, 11), normal(2, 9, 5 * LANES, *CUBE, scale=0.1)
    shape = (17, 34, 21)
    whole = run(given, filters, shape, (1, 1, 1))
    blocks = [(0, 2), (2, 5)]
    cuts = [(z, z + 1, *y, *own) for z in range(3) for y in ((0, 2), (2, 5)) for own in blocks]
    parts = run(given, filters, shape, (1, 1, 1), cuts)
    assert (parts.planar() == whole.planar()).all()


@pytest.mark.parametrize("taps", STRIDED_FORMS)
def test_applies_the_function_backward_and_sums_the_bias(taps: Triple) -> None:
    inputs, shape, zeros = LANES + 2, (6, 11, 13), (taps[0] // 2, 1, 1)
    extents = (3 if taps == CUBE else 6, 6, 7)
    given, filters = normal(1, 9, *extents), normal(2, 9, inputs, *taps, scale=0.1)
    values = Blocked.of(normal(3, inputs, *shape))
    bias = aligned(2 * LANES)
    found = run(given, filters, shape, zeros, values=values, bias_gradient=bias, slope=0.25)
    sums = gradients(given, filters, shape, zeros)
    expected = np.where(values.planar() > 0, sums, 0.25 * sums)
    close(found, expected)
    by_channel = expected.sum(axis=(1, 2, 3))
    assert np.abs(bias[:inputs] - by_channel).max() <= 1e-4 * np.abs(expected).max()
    assert (bias[inputs:] == 0).all()
