"""Tiles of lattices: every voxel belongs to exactly one tile, every tile to one group."""

from itertools import combinations, product

import numpy as np
import pytest
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.spectral.turns import place_of

from znnpy.engine.convolution.tiles import (
    Stretch,
    TileSpectra,
    Tiling,
    Window,
    in_turns,
    planes_of,
    squares_of,
)
from znnpy.engine.memory.arena import Arena
from znnpy.engine.memory.regions import Name, Use
from znnpy.engine.memory.tensors import new_tensor
from znnpy.plan.tiles import group_size

CASES = [
    Tiling((8, 8, 8), (6, 6, 6), (1, 1, 1), (13, 6, 7), 2),
    Tiling((8, 12, 8), (6, 10, 4), (2, 3, 1), (5, 22, 9), 1),
    Tiling((1, 8, 8), (1, 4, 6), (4, 4, 4), (2, 9, 30), 2),
]

IMAGES = Name(Use("images"))


def by_turns(tiles, size, step):
    """Places of a grid's tiles in the order of their numbers: those that never overlap together."""
    apart = [-(-points // new) for points, new in zip(size, step, strict=True)]

    def turns(place):
        return [number % turns for number, turns in zip(place, apart, strict=True)]

    return sorted(product(*map(range, tiles)), key=turns)


def voxels_of(tiling, stretch):
    """Voxels (batch, z, y, x) that the new points of some tiles cover, clipped to the image."""
    grid = stretch.grid
    places = by_turns(grid.counts, tiling.tile, tiling.new)
    for at in places[stretch.low : stretch.high]:
        axes = [
            range(
                first + step * new * number,
                min(extent, first + step * new * (number + 1)),
                step,
            )
            for first, step, new, number, extent in zip(
                grid.lattice, tiling.dilation, tiling.new, at, tiling.extents, strict=True
            )
        ]
        yield grid.batch, axes


@pytest.mark.parametrize("tiling", CASES)
@pytest.mark.parametrize("most", [1, 4, 1000])
def test_groups_cover_every_voxel_once(tiling, most):
    spectra = TileSpectra(tiling, LANES, most)
    times = np.zeros((tiling.batch, *tiling.extents), int)
    for group in range(spectra.groups):
        shares = spectra.stretches(group)
        assert sum(stretch.high - stretch.low for stretch in shares) == spectra.count(group)
        for stretch in shares:
            for batch, axes in voxels_of(tiling, stretch):
                times[batch][np.ix_(*axes)] += 1
    assert (times == 1).all()


@pytest.mark.parametrize("tiling", CASES)
@pytest.mark.parametrize("cut", [0, 1])
def test_declared_planes_hold_all_that_tiles_write(tiling, cut):
    tensor = new_tensor(Arena(), IMAGES, tiling.batch, 3, tiling.extents, cut=cut)
    spectra = TileSpectra(tiling, LANES, 5)
    window = Window((0, 0, 0), tiling.new)
    for group in range(spectra.groups):
        for stretch in spectra.stretches(group):
            low, high = planes_of(tensor, tiling, stretch, window)
            for _, axes in voxels_of(tiling, stretch):
                assert low <= axes[cut][0]
                assert axes[cut][-1] < high <= tensor.extent


def test_planes_outside_the_image_are_not_read():
    tiling = Tiling((8, 8, 8), (6, 6, 6), (1, 1, 1), (12, 6, 6), 1)
    gradient = new_tensor(Arena(), IMAGES, 1, 1, (3, 6, 6), cut=0)
    last = TileSpectra(tiling, LANES, 1).stretches(1)[0]
    assert planes_of(gradient, tiling, last, Window((-2, 0, 0), tiling.tile)) is None


def test_groups_are_even_and_share_large_filters():
    assert group_size((8, 8, 8), 5, 48) == 5
    assert group_size((16, 16, 16), 29, 16) == 10  # 14 would leave 1 for the last
    assert group_size((16, 16, 16), 26, 48) == 13  # 19 would leave 7
    assert group_size((16, 16, 16), 64, 80) == 32


@pytest.mark.parametrize(("size", "step"), [(8, 6), (14, 8), (8, 2), (16, 10)])
def test_tiles_with_a_point_in_common_have_a_square_in_common(size, step):
    tiling = Tiling((size,) * 3, (step,) * 3, (1, 1, 1), (step, 5 * step, 7 * step - 1), 1)
    (grid,) = tiling.grids
    squares = [
        set(squares_of(tiling, Stretch(grid, tile, tile + 1, 0, 0))) for tile in range(grid.tiles)
    ]
    places = by_turns(grid.counts[1:], tiling.tile[1:], tiling.new[1:])
    meet = [
        (i, j)
        for i, j in combinations(range(grid.tiles), 2)
        if all(abs(a - b) * step < size for a, b in zip(places[i], places[j], strict=True))
    ]
    assert all(
        bool(squares[i] & squares[j]) == ((i, j) in meet)
        for i, j in combinations(range(grid.tiles), 2)
    )
    assert set(squares_of(tiling, Stretch(grid, 3, 12, 0, 0))) == set().union(*squares[3:12])
    few = [
        set(squares_of(tiling, Stretch(grid, tile, tile + 1, 0, 0), 2))
        for tile in range(grid.tiles)
    ]
    assert all(few[i] & few[j] for i, j in meet)
    assert len(set().union(*few)) == 4


@pytest.mark.parametrize(("size", "step"), [(8, 6), (14, 8), (8, 2), (1, 1)])
def test_tiles_of_a_turn_have_no_point_in_common(size, step):
    tiling = Tiling((size,) * 3, (step,) * 3, (1, 1, 1), (3 * step, 5 * step, 7 * step - 1), 2)
    grid = tiling.grids[1]
    places = [
        place_of(number, grid.counts, tiling.tile, tiling.new)[1] for number in range(grid.tiles)
    ]
    stretch = Stretch(grid, 4, grid.tiles - 2, 1, grid.first)
    turns = in_turns(tiling, stretch)
    assert [number for turn in turns for number in turn.tiles] == [*range(4, grid.tiles - 2)]
    for turn in turns:
        for one, other in combinations(places[turn.low : turn.high], 2):
            assert any(abs(a - b) * step >= size for a, b in zip(one, other, strict=True))
    # No more parts than there are turns along y and x, plane by plane.
    along = -(-size // step)
    assert len(turns) <= grid.counts[0] * along * along


@pytest.mark.parametrize(
    ("extent", "most", "expected"), [(16, 20, 20), (16, 5, 4), (32, 20, 16), (32, 3, 2), (9, 5, 5)]
)
def test_groups_are_of_whole_lattices_or_equal_parts_of_one(extent, most, expected):
    tiling = Tiling((6, 6, 6), (4, 4, 4), (2, 2, 2), (8, 16, extent), 1)
    assert tiling.in_lattices(most) == expected
