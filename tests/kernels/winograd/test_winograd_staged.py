"""Winograd's minimal filtering in three stages against correlation in float64 NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from blocked_images import Blocked
from correlations import FLAT, Pass, Triple, correlated, operands
from filter_points import aligned
from znnpy_kernels.direct.packed_filters import pack_filters
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd.few_tiles import FEW_TILES
from znnpy_kernels.winograd.forms import FORMS
from znnpy_kernels.winograd.panel_filters import most_terms
from znnpy_kernels.winograd.panels import PANELS_OF, panels_floats
from znnpy_kernels.winograd.planes import plane
from znnpy_kernels.winograd.stages import (
    COLUMNS_OF,
    IMAGES,
    PLANES,
    columns_floats,
    planes_floats,
    waiting_floats,
)

Products = Callable[["Group", Any, Any], None]


@dataclass
class Group:
    """Tiles of a pass: how many along z and x, and along y; the argument words that say which."""

    given: Pass
    tiles: int
    rows: int
    words: dict[str, Any]
    lone: dict[str, int]

    def floats(self, *, seen: bool) -> int:
        return waiting_floats(self.given.taps, self.rows, self.tiles, seen=seen)


def run(
    images: Any, filters: Any, dilation: Triple, deep: int, rows: int, products: Products, zeros: int = 0
) -> Blocked:  # fmt: skip
    """The output by groups of `deep` layers of tiles along z and `rows` along y; blocks one by one.

    `zeros` lie around images of 4 k + 3 voxels: two of them, so that the last tiles see one voxel.
    """
    given, lone = Pass(images, filters, dilation, zeros), int(zeros > 0)
    (z, y, x), form = given.extents, FORMS[given.taps]
    slabs = -(-z // (form.new_z * dilation[0]))
    for slab in range(0, slabs, deep):
        z0, z1 = slab * dilation[0], min(slabs, slab + deep) * dilation[0]
        tiles = inside(range(z0, z1), dilation[0], form.new_z, z)
        tiles *= inside(range(x), dilation[2], form.new_x, x)
        for lattice in range(min(y, dilation[1])):
            line = -(-len(range(lattice, y, dilation[1])) // form.new_y)
            for row in range(0, line, rows):
                many = min(rows, line - row)
                words = {"z0": z0, "z1": z1, "y0": row * dilation[1] + lattice, "y1": 0}
                last = {"lone_z": lone * (z1 == slabs), "lone_y": lone * (row + many == line)}
                layers = inside(range(z0, z1), dilation[0], form.new_z, z)
                seen = {"wide": tiles // layers, **last, "lone_x": lone}
                emit(Group(given, tiles, many, words | {"rows": many}, seen), products)
    return given.target


def inside(tiles: range, dilation: int, new: int, extent: int) -> int:
    return sum(t // dilation * new * dilation + t % dilation < extent for t in tiles)


def emit(group: Group, products: Products) -> None:
    given, form, rows = group.given, FORMS[group.given.taps], group.rows
    blocks = given.blocks
    floats = [group.floats(seen=seen) for seen in (True, False)]
    before, behind = (aligned(count * one + 16) for count, one in zip(blocks, floats, strict=True))
    words = given.words | group.words | {"scratch": aligned(planes_floats(given.taps, group.tiles))}
    seen = form.new_y * rows + form.points_y - form.new_y
    for block, cut in product(reversed(range(blocks[0])), halves(seen)):
        own = {"inputs": min(LANES, given.inputs - block * LANES), "row0": cut[0], "row1": cut[1]}
        own["source"] = words["source"] + 4 * block * words["source_block"]
        own["planes"] = address(before) + 4 * block * floats[0]
        PLANES[given.taps].run(**words | own)
    products(group, before, behind)
    for block, cut in product(reversed(range(blocks[1])), halves(form.new_y * rows)):
        own = {"blocks": 1, "target": words["target"] + 4 * block * words["target_block"]}
        own |= {"row0": cut[0], "row1": cut[1]}
        own["planes"] = address(behind) + 4 * block * floats[1]
        IMAGES[given.taps].run(**words | own)


def read(group: Group, before: Any, behind: Any) -> None:
    """Products with transformed filters: a column and a pair of vectors a task, the last columns first."""
    given, last = group.given, group.given.blocks[1]
    tiles = group.tiles * group.rows
    scratch = aligned(columns_floats(given.taps, given.inputs, given.outputs, tiles))
    for column, first in product(reversed(range(plane(FORMS[given.taps]))), range(0, last, 2)):
        COLUMNS_OF[given.taps].run(
            source=before, target=behind, inputs=given.inputs, blocks=last,
            block0=first, block1=min(first + 2, last),
            filters=given.filters, **group.lone, tiles=group.tiles, rows=group.rows, column0=column, column1=column + 1,
            scratch=scratch, scratch_worker=0,
        )  # fmt: skip


def made(filters: Any, *, exchanged: bool, depths: int, vectors: int, together: int) -> Products:
    """Products with filters that are transformed on the way: so many planes of points and vectors of outputs a task."""
    if exchanged:
        filters = np.ascontiguousarray(filters[:, :, ::-1, ::-1, ::-1].swapaxes(0, 1))
    packed = pack_filters(filters)

    def products(group: Group, before: Any, behind: Any) -> None:
        given, (_, last), planes = group.given, group.given.blocks, FORMS[group.given.taps].points_z
        tiles, once = (
            group.tiles * group.rows,
            1 if group.tiles * group.rows <= FEW_TILES else together,
        )
        scratch = aligned(panels_floats(given.taps, depths, vectors, tiles, once))
        for depth, first in product(range(0, planes, depths), reversed(range(0, last, vectors))):
            PANELS_OF[given.taps, exchanged].run(
                source=before, source_image=0, target=behind, target_image=0, images=1,
                tiles=group.tiles, rows=group.rows, inputs=given.inputs, outputs=given.outputs, filters=packed,
                depth0=depth, depth1=min(planes, depth + depths), block0=first, block1=min(last, first + vectors),
                together=once, scratch=scratch, scratch_worker=0,
            )  # fmt: skip

    return products


def halves(rows: int) -> list[tuple[int, int]]:
    """Rows of two tasks, the last ones first."""
    return [(rows // 2, rows), (0, rows // 2)]


def way(filters: Any, exchanged: bool | None, size: int) -> Products:
    """Filters that are read (None), or made on the way; larger tasks for a larger `size`."""
    if exchanged is None:
        return read
    return made(
        filters,
        exchanged=exchanged,
        depths=min(6, size),
        vectors=2 * size,
        together=min(size, most_terms(filters.shape[2]) // LANES),
    )


@pytest.mark.quick(4)
@pytest.mark.parametrize("exchanged", [None, False, True])
@pytest.mark.parametrize(("deep", "rows"), [(1, 1), (2, 3), (9, 9)])
@pytest.mark.parametrize(
    ("inputs", "outputs", "shape", "dilation"),
    [
        (1, 1, (6, 6, 6), (1, 1, 1)),
        (3, 5, (7, 8, 9), (1, 1, 1)),
        (12, 16, (14, 11, 40), (1, 1, 1)),
        (LANES + 3, 2 * LANES, (9, 30, 12), (1, 2, 1)),
        (16, 3 * LANES + 1, (11, 12, 13), (2, 1, 3)),
        (5, 7, (20, 21, 22), (4, 4, 4)),
    ],
)
def test_correlates(
    inputs: int,
    outputs: int,
    shape: Triple,
    dilation: Triple,
    deep: int,
    rows: int,
    exchanged: bool | None,
) -> None:
    images, filters = operands(inputs, outputs, shape)
    expected = correlated(images, filters, dilation)
    found = run(images, filters, dilation, deep, rows, way(filters, exchanged, deep))
    assert np.abs(found.planar() - expected).max() <= 1e-5 * np.abs(expected).max()
    assert (found.pad() == 0).all()
    assert found.gaps_intact()


@pytest.mark.parametrize(("deep", "rows"), [(1, 1), (2, 3), (9, 9)])
@pytest.mark.parametrize(("inputs", "outputs"), [(LANES + 3, 5), (3, 3 * LANES + 1)])
def test_points_of_lone_voxels_are_left_out(
    inputs: int, outputs: int, deep: int, rows: int
) -> None:
    images, filters = operands(inputs, outputs, (7, 11, 15))
    around = np.pad(images, [(0, 0), (2, 2), (2, 2), (2, 2)])
    expected = correlated(around, filters, (1, 1, 1))
    found = run(images, filters, (1, 1, 1), deep, rows, read, zeros=2)
    assert np.abs(found.planar() - expected).max() <= 1e-5 * np.abs(expected).max()
    assert found.gaps_intact()


@pytest.mark.share(54)
@pytest.mark.quick(6)
@pytest.mark.parametrize("exchanged", [None, False, True])
@pytest.mark.parametrize(("deep", "rows"), [(1, 1), (2, 3), (9, 9)])
@pytest.mark.parametrize("taps", FLAT)
@pytest.mark.parametrize(
    ("inputs", "outputs", "shape", "dilation"),
    [
        (3, 5, (7, 8, 9), (1, 1, 1)),
        (LANES + 3, 2 * LANES, (9, 30, 12), (1, 2, 1)),
        (16, 3 * LANES + 1, (11, 12, 13), (2, 1, 3)),
    ],
)
def test_correlates_with_flat_filters(
    inputs: int,
    outputs: int,
    shape: Triple,
    dilation: Triple,
    taps: Triple,
    deep: int,
    rows: int,
    exchanged: bool | None,
) -> None:
    images, filters = operands(inputs, outputs, shape, taps)
    z, y, x = (d if k > 1 else 1 for d, k in zip(dilation, taps, strict=True))
    expected = correlated(images, filters, (z, y, x))
    found = run(images, filters, (z, y, x), deep, rows, way(filters, exchanged, deep))
    assert np.abs(found.planar() - expected).max() <= 1e-5 * np.abs(expected).max()
    assert (found.pad() == 0).all()
    assert found.gaps_intact()
