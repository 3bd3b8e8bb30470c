"""Mutex watersheds tile by tile, beside the paper's algorithm on sets."""

from __future__ import annotations

import numpy as np
import pytest
from grid import FAR, GRID, affinities, noisy, same
from mutex_by_sets import brute_force
from optional import needs_bioimage_cpp
from tiled import with_tile

from znnpy.data.volume import Triple
from znnpy.errors import VolumeError
from znnpy.metrics import adapted_rand
from znnpy.segment.bonds import Bonds, strongest
from znnpy.segment.faces import Faces
from znnpy.segment.in_memory import in_tiles
from znnpy.segment.methods import mutex
from znnpy.segment.mutex_tiles import by_mutex, ready
from znnpy.segment.region_graph import RegionGraph
from znnpy.segment.wanted import Wanted

pytestmark = needs_bioimage_cpp
SHAPE = (5, 6, 7)
MORE: tuple[Triple, ...] = ((0, 0, 1), (-1, 0, 0), (0, 1, 0), (2, 0, -2), (0, -3, 0), (0, 0, 4))


def tiles_of(shape: Triple, tile: Triple) -> list[tuple[slice, ...]]:
    return [
        tuple(slice(n * size, (n + 1) * size) for n, size in zip(place, tile, strict=True))
        for place in np.ndindex(*(-(-n // size) for n, size in zip(shape, tile, strict=True)))
    ]


@pytest.mark.parametrize("offsets", [FAR, MORE])
@pytest.mark.parametrize("tile", [(3, 3, 4), (5, 2, 7), (1, 6, 3), (1, 1, 1)])
def test_fragments_of_tiles_are_joined_as_by_the_paper(
    tile: Triple, offsets: tuple[Triple, ...]
) -> None:
    """Without a halo: each tile by the paper's algorithm, then all edges with what tiles have joined."""
    values = np.random.default_rng(8).random((len(offsets), *SHAPE)).astype(np.float32)
    signed = np.concatenate([values[:3], np.float32(0.9) - values[3:]])
    joined, count = np.zeros(SHAPE, int), 0
    for part in tiles_of(SHAPE, tile):
        joined[part] = brute_force(signed[:, *part], offsets, 3) + count
        count = int(joined.max())
    wanted = brute_force(signed, offsets, 3, joined)
    found = in_tiles(with_tile("mutex", tile, halo=0), values, Wanted("affinity", 0.45, offsets))
    assert same(found, wanted)


@pytest.mark.parametrize("levels", [256, 4])
def test_one_tile_is_the_mutex_watershed(levels: int) -> None:
    """Also where many edges are equally sure: what the tile parted stays apart."""
    values = np.random.default_rng(9).integers(0, levels, (len(FAR), 9, 10, 11)) / (levels - 1)
    one = mutex(values.astype(np.float32), "affinity", 0.5, FAR)
    found = in_tiles(
        with_tile("mutex", (9, 10, 11)), values.astype(np.float32), Wanted("affinity", 0.5, FAR)
    )
    assert one.max() > 5
    assert same(found, one)


@pytest.mark.parametrize("tile", [(8, 9, 10), (5, 18, 21), (15, 5, 6)])
def test_objects_go_on_across_tiles(tile: Triple) -> None:
    shown = noisy(affinities(GRID, FAR), 0.2)
    found = in_tiles(with_tile("mutex", tile, halo=4), shown, Wanted("affinity", 0.5, FAR))
    assert adapted_rand(GRID, found).error < 0.05
    exact = in_tiles(
        with_tile("mutex", tile, halo=4), affinities(GRID, FAR), Wanted("affinity", 0.5, FAR)
    )
    assert same(exact, GRID)


def test_the_surest_edge_of_several_tiles_counts() -> None:
    none = -np.inf
    one = Bonds(np.array([[1, 2], [2, 5]]), np.float32([0.5, none]), np.float32([none, 0.25]))
    two = Bonds(np.array([[2, 5], [3, 1]]), np.float32([0.75, 0.1]), np.float32([0.5, none]))
    found = strongest([one, two], 6)
    assert found.pairs.tolist() == [[1, 2], [1, 3], [2, 5]]
    assert found.attraction.tolist() == np.float32([0.5, 0.1, 0.75]).tolist()
    assert found.repulsion.tolist() == [none, none, 0.5]
    assert strongest([], 1).pairs.shape == (0, 2)


def test_of_equal_bonds_repulsion_comes_first() -> None:
    bonds = Bonds(np.array([[1, 2], [2, 3]]), np.float32([0.5, 0.4]), np.float32([0.5, -np.inf]))
    nothing = Faces(np.zeros((0, 2), np.int64), np.zeros(0), np.zeros(0))
    graph = RegionGraph(np.arange(3), np.array([0, 1, 1, 1]), nothing, bonds)
    none, a, b, c = by_mutex(graph, Wanted("affinity", 0.5, FAR))
    assert a != b
    assert b == c
    assert none not in (a, b)


def test_what_is_not_taken_is_refused_before_anything_is_made() -> None:
    with pytest.raises(VolumeError, match="next neighbour along each axis"):
        ready(Wanted("affinity", 0.5, FAR[:3]))
