"""Components found tile by tile are those of the whole volume, also in their numbers."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from grid import same
from scipy import ndimage
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from tiled import with_tile

from znnpy.data.volume import Triple
from znnpy.segment.in_memory import in_tiles
from znnpy.segment.method import METHODS
from znnpy.segment.methods import watershed
from znnpy.segment.wanted import Wanted

SHAPE = (11, 13, 12)
TILES: tuple[Triple, ...] = ((11, 13, 12), (4, 5, 12), (1, 13, 7), (3, 3, 3), (1, 1, 1))
BACK: tuple[Triple, ...] = ((-1, 0, 0), (0, -1, 0), (0, 0, -1))
MIXED: tuple[Triple, ...] = ((0, 0, 1), (0, 0, -4), (1, 0, 0), (0, -1, 0))


def renumbered(labels: np.ndarray, least: int) -> np.ndarray:
    """Objects of at least so many voxels, numbered in the order of their first voxels."""
    numbers, first, sizes = np.unique(labels, return_index=True, return_counts=True)
    kept = [
        number
        for _, number, size in sorted(zip(first, numbers, sizes, strict=True))
        if number > 0 and size >= least
    ]
    table = np.zeros(int(labels.max()) + 1, int)
    table[kept] = np.arange(1, len(kept) + 1)
    return table[labels]


def affinities(offsets: tuple[Triple, ...]) -> np.ndarray:
    return np.random.default_rng(4).random((len(offsets), *SHAPE)).astype(np.float32)


@cache
def by_graph(offsets: tuple[Triple, ...], threshold: float) -> np.ndarray:
    """Components of the graph of all voxels, by SciPy."""
    values = affinities(offsets)
    index = np.arange(values[0].size).reshape(values.shape[1:])
    edges = []
    for channel, offset in enumerate(offsets):
        if sum(map(abs, offset)) != 1:
            continue
        for place in np.argwhere(values[channel] > threshold):
            other = place + offset
            if (other >= 0).all() and (other < values.shape[1:]).all():
                edges.append((index[tuple(place)], index[tuple(other)]))
    pairs = np.array(edges).T
    graph = coo_array((np.ones(pairs.shape[1]), pairs), (index.size, index.size))
    return connected_components(graph, directed=False)[1].reshape(index.shape) + 1


@pytest.mark.parametrize("least", [0, 4])
@pytest.mark.parametrize("kind", ["boundary", "foreground"])
@pytest.mark.parametrize("tile", TILES)
def test_components_of_maps_are_scipys(tile: Triple, kind: str, least: int) -> None:
    values = np.random.default_rng(3).random((1, *SHAPE)).astype(np.float32)
    inside = values[0] < 0.35 if kind == "boundary" else values[0] > 0.35
    wanted = renumbered(ndimage.label(inside)[0], least)
    found = in_tiles(with_tile("components", tile), values, Wanted(kind, 0.35, (), least))
    assert wanted.max() > 9 or kind == "foreground"
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize("least", [0, 4])
@pytest.mark.parametrize("offsets", [BACK, MIXED])
@pytest.mark.parametrize("tile", TILES)
def test_components_of_affinities_are_scipys(
    tile: Triple, offsets: tuple[Triple, ...], least: int
) -> None:
    """Lone voxels are none, wherever the tiles end."""
    wanted = renumbered(by_graph(offsets, 0.8), max(2, least))
    given = Wanted("affinity", 0.8, offsets, least)
    found = in_tiles(with_tile("components", tile), affinities(offsets), given)
    assert wanted.max() > 20
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize("kind", ["boundary", "foreground", "affinity"])
@pytest.mark.parametrize("tile", TILES)
def test_a_watershed_of_tiles_that_see_all_is_that_of_one_piece(tile: Triple, kind: str) -> None:
    channels = 3 if kind == "affinity" else 1
    values = np.random.default_rng(5).random((channels, *SHAPE)).astype(np.float32)
    threshold = {"boundary": 0.2, "foreground": 0.7, "affinity": 0.4}[kind]
    wanted = Wanted(kind, threshold, BACK, 3)
    one = renumbered(watershed(values, kind, threshold, BACK, 3), 0)
    found = in_tiles(with_tile("watershed", tile, halo=100), values, wanted)
    assert one.max() > 3
    assert same(found, one)


@pytest.mark.parametrize("tile", TILES[1:])
def test_tiles_of_a_watershed_keep_its_seeds(tile: Triple) -> None:
    """Seeds are the same objects in all tiles, whatever the halo, and what no seed reaches is left out."""
    values = np.random.default_rng(6).random((1, *SHAPE)).astype(np.float32)
    seeds = renumbered(ndimage.label(values[0] < 0.25)[0], 3)
    found = in_tiles(with_tile("watershed", tile, halo=1), values, Wanted("boundary", 0.25, (), 3))
    assert np.array_equal(found[seeds > 0], seeds[seeds > 0])
    assert set(np.unique(found)) - {0} == set(range(1, seeds.max() + 1))


def test_small_pieces_within_a_tile_are_not_kept() -> None:
    """Noise of single voxels does not fill the graph of all components."""
    from znnpy.segment.component_tiles import cut
    from znnpy.segment.tiles import box, tiling_of

    values = np.random.default_rng(7).random((3, 20, 20, 20)).astype(np.float32)
    tiling = tiling_of(METHODS["components"], (20, 20, 20), (1, 1, 1), 0.5)
    labels, part = cut(
        tiling, (0, 0, 0), lambda a, b: values[:, *box(a, b)], Wanted("affinity", 0.99, BACK)
    )
    assert len(part.ids) == len(part.voxels) == labels.max()
    inner = np.unique(labels[1:-1, 1:-1, 1:-1])
    assert part.voxels[inner[inner > 0] - 1].min() >= 1
    assert len(part.ids) < 0.4 * labels.size
    assert np.count_nonzero(labels[1:-1, 1:-1, 1:-1]) < 0.1 * labels.size


@pytest.mark.parametrize("threshold", [0.3, 0.7])
def test_a_foreground_is_flooded_down_to_a_half_or_the_threshold(threshold: float) -> None:
    values = np.random.default_rng(8).random((1, *SHAPE)).astype(np.float32)
    wanted = Wanted("foreground", threshold, (), 0)
    found = in_tiles(with_tile("watershed", (4, 5, 12), halo=2), values, wanted)
    assert (found[values[0] > threshold] > 0).all()
    assert not found[values[0] <= min(0.5, threshold)].any()
    assert threshold < 0.5 or (found[(values[0] > 0.5) & (values[0] < threshold)] > 0).any()
