"""Shallow images by Winograd's minimal filtering: products and sums of points against NumPy in float64."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from blocked_images import normal
from filter_points import aligned
from znnpy_kernels.direct.packed_filters import pack_filters, packed_size, unpack_filters
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd.forms import POINTS
from znnpy_kernels.winograd.gradient_points import block_floats
from znnpy_kernels.winograd.line_transforms import FILTER_FACTORS, filter_matrix
from znnpy_kernels.winograd.products import odd_bytes
from znnpy_kernels.winograd.shallow import FLAT, MOST_PLANES, SHALLOW, shallow_floats
from znnpy_kernels.winograd.shallow_gradient import SUMS_FLOATS, winograd_shallow_sums
from znnpy_kernels.winograd.stages import waiting_floats

K3 = (3, 3, 3)
NEW = 4
SIZES = [
    (1, 1, 1, 1),
    (LANES, 2 * LANES, 4, 1),
    (LANES + 3, 3 * LANES + 1, 3, 2),
    (2 * LANES, 5, 2, 3),
]


def blocks(channels: int) -> int:
    return -(-channels // LANES)


def met(seen: Any, planes: int) -> Any:
    """By tap along z and plane what the tap meets of `seen` [...][plane], zeros beyond."""
    around = np.pad(seen, [*[(0, 0)] * (seen.ndim - 1), (1, 1)])
    return np.stack([around[..., tap : tap + planes] for tap in range(3)])


def multiplied(
    before: Any, filters: Any, planes: int, *, exchanged: bool, columns: int, pairs: int
) -> Any:
    """Rows [image][output][x][y][plane] of rows of inputs, by tasks of so many columns and pairs of vectors."""
    outputs, inputs = filters.shape[:2]
    images, rows = len(before), before.shape[3]
    seen, made = (waiting_floats(FLAT, 1, planes, seen=it) for it in (True, False))
    source = aligned(images * blocks(inputs) * seen)
    target = aligned(images * blocks(outputs) * made)
    whole = np.zeros((images, blocks(inputs) * LANES, POINTS, rows, planes), np.float32)
    whole[:, :inputs] = before
    whole = whole.reshape(images, -1, LANES, POINTS, rows, planes).transpose(0, 1, 3, 4, 5, 2)
    source.reshape(images, blocks(inputs), POINTS, -1)[..., : rows * planes * LANES] = (
        whole.reshape(images, -1, POINTS, rows * planes * LANES)
    )
    lying = filters
    if exchanged:
        lying = np.ascontiguousarray(filters[:, :, ::-1, ::-1, ::-1].swapaxes(0, 1))
    scratch = aligned(shallow_floats(columns, 2 * pairs, planes * images))
    cuts = range(0, POINTS, columns), range(0, blocks(outputs), 2 * pairs)
    for column, block in product(*map(reversed, cuts)):
        SHALLOW[exchanged].run(
            source=source, source_image=4 * blocks(inputs) * seen, target=target,
            target_image=4 * blocks(outputs) * made, images=images, tiles=planes, rows=1, inputs=inputs,
            outputs=outputs, filters=pack_filters(lying), depth0=column, depth1=min(POINTS, column + columns),
            block0=block, block1=min(blocks(outputs), block + 2 * pairs), together=1, scratch=scratch,
            scratch_worker=0,
        )  # fmt: skip
    found = target.reshape(images, blocks(outputs), POINTS, -1)[..., : NEW * planes * LANES]
    found = found.reshape(images, blocks(outputs), POINTS, NEW, planes, LANES)
    found = found.transpose(0, 1, 5, 2, 3, 4).reshape(images, -1, POINTS, NEW, planes)
    assert (found[:, outputs:] == 0).all()
    return found[:, :outputs]


@pytest.mark.parametrize("exchanged", [False, True])
@pytest.mark.parametrize(("inputs", "outputs", "planes", "images"), SIZES)
def test_planes_are_correlated_along_y_and_z(
    inputs: int, outputs: int, planes: int, images: int, exchanged: bool
) -> None:
    """Along x there are points already: of voxels as they come, of filters by their factors."""
    assert planes <= MOST_PLANES
    before = normal(1, images, inputs, POINTS, POINTS, planes)
    filters = normal(2, outputs, inputs, *K3)
    across = np.einsum("px,oczyx->oczyp", np.array(FILTER_FACTORS), filters.astype(np.float64))
    seen, expected = met(before.astype(np.float64), planes), 0.0
    for y in range(3):
        rows = seen[..., y : y + NEW, :]
        expected = expected + np.einsum("oczp,zicpyd->iopyd", across[:, :, :, y], rows)
    found = [
        multiplied(before, filters, planes, exchanged=exchanged, columns=columns, pairs=pairs)
        for columns, pairs in ((6, 9), (2, 1))
    ]
    assert np.abs(found[0] - expected).max() <= 3e-6 * np.abs(expected).max()
    assert (found[0] == found[1]).all()


@pytest.mark.parametrize(("inputs", "outputs", "planes", "images"), SIZES)
def test_points_are_summed_to_taps(inputs: int, outputs: int, planes: int, images: int) -> None:
    ends = [
        normal(seed, channels, POINTS, POINTS, images, planes)
        for seed, channels in ((1, inputs), (2, outputs))
    ]
    tiles, floats = images * planes, block_floats(FLAT, images * planes)
    points = []
    for values in ends:
        whole = np.zeros((blocks(len(values)) * LANES, *values.shape[1:]), np.float32)
        whole[: len(values)] = values
        whole = whole.reshape(-1, LANES, POINTS**2, tiles * 1).transpose(0, 2, 3, 1)
        own = aligned(len(whole) * floats)
        lying = own.reshape(len(whole), floats)[:, : POINTS**2 * odd_bytes(tiles) // 4]
        lying.reshape(len(whole), POINTS**2, -1)[..., : tiles * LANES] = whole.reshape(
            len(whole), POINTS**2, tiles * LANES
        )
        points.append(own)
    made = np.full(packed_size(outputs, inputs, 27) + LANES, np.nan, np.float32)
    found = []
    for adds in (False, True):
        winograd_shallow_sums.run(
            source=points[0], gradient=points[1], tiles=tiles, planes=planes, inputs=inputs,
            blocks=blocks(outputs), target=made, adds=adds, scratch=aligned(SUMS_FLOATS), scratch_worker=0,
        )  # fmt: skip
        assert np.isnan(made[-LANES:]).all()
        found.append(unpack_filters(made[:-LANES], (outputs, inputs, *K3)))
    seen, gradient = met(ends[0].astype(np.float64), planes), ends[1].astype(np.float64)
    sums = np.einsum("zcpqid,opqid->oczpq", seen, gradient)
    expected = np.einsum("py,qx,oczpq->oczyx", filter_matrix(), filter_matrix(), sums)
    assert np.abs(found[0] - expected).max() <= 3e-6 * np.abs(expected).max()
    assert (found[1] == 2.0 * found[0]).all()
