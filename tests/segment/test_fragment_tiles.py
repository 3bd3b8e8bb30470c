"""Fragments in tiles: that a tile which sees all is one piece, what halos leave, and the graph of all tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cells import cells

from znnpy.data.volume import Triple, Triple64
from znnpy.segment.faces import BINS, Faces, faces, summed
from znnpy.segment.fragments import fragments
from znnpy.segment.region_graph import RegionGraph, graph_of, objects_of
from znnpy.segment.tiles import Part, Read, Tiling, box, cut
from znnpy.segment.wanted import Wanted

CUBE: Triple64 = (1, 1, 1)
FLAT: Triple64 = (4, 1, 1)
WANTED = Wanted("boundary", 0.5)


def reading(height: np.ndarray) -> Read:
    """What reads a boundary map as the channel of a prediction."""
    return lambda lower, upper: height[None, *box(lower, upper)]


def in_tiles(
    height: np.ndarray, tiling: Tiling, share: float = 0.5
) -> tuple[np.ndarray, RegionGraph]:
    """The graph of a map cut into tiles, and its fragments as it numbers them."""
    parts: dict[Triple, Part] = {}
    labels = np.zeros(height.shape, np.int64)
    for place in tiling.places:
        own, parts[place] = cut(tiling, place, reading(height), WANTED, share)
        labels[box(*tiling.region(place))] = own
    graph = graph_of(tiling, parts.__getitem__)
    for place, part in parts.items():
        inside = box(*tiling.region(place))
        labels[inside] = graph.numbers(part.ids)[labels[inside]]
    return labels, graph


def tiling_of(height: np.ndarray, resolution: Triple64 = CUBE, **more: Any) -> Tiling:
    z, y, x = height.shape
    return Tiling((z, y, x), resolution, 0.5, **more)


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two maps of labels differ in numbers alone."""
    pairs = np.unique(np.stack([one.ravel(), other.ravel()]), axis=1)
    return len(set(pairs[0])) == len(set(pairs[1])) == pairs.shape[1]


@pytest.mark.parametrize("resolution", [CUBE, FLAT])
@pytest.mark.parametrize("tile", [(9, 17, 11), (30, 20, 52), (7, 44, 20)])
def test_tiles_that_see_all_have_the_fragments_of_one_piece(
    tile: Triple, resolution: Triple64
) -> None:
    height = cells()
    labels, graph = in_tiles(height, tiling_of(height, resolution, tile=tile, halo=100))
    whole = fragments(height, 0.25, resolution)
    assert same(labels, whole)
    assert len(graph.ids) == whole.max() > 40


@pytest.mark.parametrize("bins", [False, True])
@pytest.mark.parametrize("halo", [0, 3, 8])
def test_the_graph_of_tiles_is_that_of_their_fragments(halo: int, bins: bool) -> None:
    height = cells()
    labels, graph = in_tiles(height, tiling_of(height, bins=bins, tile=(9, 17, 11), halo=halo))
    wanted = faces(labels, height, bins=bins)
    assert np.array_equal(graph.faces.pairs, wanted.pairs)
    assert np.array_equal(graph.faces.size, wanted.size)
    np.testing.assert_allclose(graph.faces.total, wanted.total)
    assert np.array_equal(graph.voxels[1:], np.bincount(labels.ravel())[1:])
    if bins:
        assert np.array_equal(graph.faces.counts, wanted.counts)
        assert graph.faces.counts is not None
        assert np.array_equal(graph.faces.counts.sum(axis=1), graph.faces.size)
    assert np.all(np.diff(graph.ids) > 0)


def test_a_halo_makes_fragments_go_on_across_tiles() -> None:
    height = cells()
    counts = []
    for halo in (0, 12):
        labels, _ = in_tiles(height, tiling_of(height, tile=(10, 22, 26), halo=halo))
        whole = fragments(height, 0.25, CUBE)
        counts.append(abs(len(np.unique(labels)) - whole.max()))
    assert counts[1] < counts[0]


def test_histograms_are_numpys() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, (5, 6, 7))
    height = rng.random(labels.shape).astype(np.float32)
    height[0, 0, :2] = 0, 1
    found = faces(labels, height, bins=True)
    values: dict[tuple[int, int], list[float]] = {}
    for axis in range(3):
        one, other = (np.moveaxis(it, axis, 0) for it in (labels, height))
        for a, b, v, w in zip(
            one[:-1].ravel(), one[1:].ravel(), other[:-1].ravel(), other[1:].ravel(), strict=True
        ):
            if min(a, b) > 0 and a != b:
                values.setdefault((min(a, b), max(a, b)), []).append(max(v, w))
    assert found.counts is not None
    for pair, counts in zip(found.pairs.tolist(), found.counts, strict=True):
        wanted, _ = np.histogram(np.array(values[tuple(pair)], np.float32), BINS, (0, 1))
        assert np.array_equal(counts, wanted)


def test_parts_are_summed() -> None:
    one = Faces(np.array([[1, 2], [2, 5]]), np.array([0.5, 1.0]), np.array([1.0, 4.0]))
    two = Faces(np.array([[1, 3], [2, 5]]), np.array([0.25, 2.0]), np.array([2.0, 3.0]))
    found = summed([one, two], 6)
    assert found.pairs.tolist() == [[1, 2], [1, 3], [2, 5]]
    assert found.total.tolist() == [0.5, 0.25, 3.0]
    assert found.size.tolist() == [1, 2, 7]
    nothing = summed([Faces(np.zeros((0, 2), np.int64), np.zeros(0), np.zeros(0))], 1)
    assert nothing.pairs.shape == (0, 2)


def test_objects_are_numbered_by_their_first_fragments() -> None:
    graph = RegionGraph(
        np.array([3, 8, 9, 20, 21]),
        np.array([0, 5, 1, 2, 3, 10]),
        Faces(np.zeros((0, 2), np.int64), np.zeros(0), np.zeros(0)),
    )
    numbers, sizes = objects_of(graph, np.array([0, 4, 2, 5, 4, 5]), 2)
    assert numbers.tolist() == [0, 1, 0, 2, 1, 2]
    assert sizes.tolist() == [8, 12]
    assert numbers.dtype == np.uint64


def test_places_and_regions() -> None:
    tiling = Tiling((10, 20, 7), CUBE, 0.5, tile=(4, 20, 5), halo=2)
    assert tiling.places == [(z, 0, x) for z in range(3) for x in range(2)]
    assert tiling.region((2, 0, 1)) == ((8, 0, 5), (10, 20, 7))
    assert tiling.window((1, 0, 0)) == ((2, 0, 0), (10, 20, 7))
    assert Tiling((10, 20, 7), FLAT, 0.5, tile=(4, 20, 5)).window((1, 0, 0))[0] == (4, 0, 0)
    assert tiling.meeting((3, 0, 4), (5, 1, 6)) == [(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1)]
    assert tiling.meeting((4, 0, 0), (8, 1, 5)) == [(1, 0, 0)]
    assert tiling.most_voxels == 8 * 20 * 7
