"""The graph of all fragments of a volume, put together from what its tiles bring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from znnpy.data.volume import Triple
from znnpy.segment.bonds import Bonds, strongest
from znnpy.segment.faces import Faces, summed
from znnpy.segment.tiles import Part, Plane, Tiling, between

EDGE = 250  # bytes that a face between two fragments takes in graph and agglomeration at the peak, without histograms
FRAGMENT = 100  # bytes that a fragment takes


@dataclass(frozen=True)
class RegionGraph:
    """Fragments of a volume, numbered from 1 in the order of `ids` (n,), as `Part` has them.

    `voxels` int64 (n + 1,), 0 first; `faces` between them; `bonds`, of methods that have such.
    """

    ids: NDArray[np.int64]
    voxels: NDArray[np.int64]
    faces: Faces
    bonds: Bonds | None = None

    def numbers(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of a part's fragments, after 0 for none."""
        return np.concatenate([[0], np.searchsorted(self.ids, ids) + 1])


def graph_of(
    tiling: Tiling,
    part_at: Callable[[Triple], Part],
    bonds_at: Callable[[Triple], Bonds] | None = None,
) -> RegionGraph:
    """Return the graph of all tiles; each is asked for once or, at its ends, again.

    `bonds_at`: returns the bonds of a tile, between fragments as `Part` names them.
    """
    places = tiling.places
    brought = [_core(part_at(place)) for place in places]
    ids = np.unique(np.concatenate([ids for ids, _, _ in brought]))
    voxels = np.zeros(len(ids) + 1, np.int64)
    graph = RegionGraph(ids, voxels, brought[0][2])
    found = []
    for own, sizes, within in brought:
        numbers = graph.numbers(own)
        voxels[numbers[1:]] += sizes
        found.append(replace(within, pairs=np.sort(numbers[within.pairs], axis=1)))
    if bonds_at is not None:
        bonds = strongest([_renamed(bonds_at(place), graph) for place in places], len(voxels))
        return replace(graph, bonds=bonds)
    found += _seams(tiling, graph, part_at)
    return replace(graph, faces=summed(found, len(voxels)))


def _core(part: Part) -> tuple[NDArray[np.int64], NDArray[np.int64], Faces]:
    # Without its planes, of which all together would be too many.
    return part.ids, part.voxels, part.faces


def _renamed(bonds: Bonds, graph: RegionGraph) -> Bonds:
    return replace(bonds, pairs=np.searchsorted(graph.ids, bonds.pairs) + 1)


def _seams(tiling: Tiling, graph: RegionGraph, part_at: Callable[[Triple], Part]) -> list[Faces]:
    found, known = [], set(tiling.places)
    for place in tiling.places:
        for axis in range(3):
            z, y, x = (n + (a == axis) for a, n in enumerate(place))
            if (z, y, x) not in known:
                continue
            before, after = part_at(place), part_at((z, y, x))
            planes = (
                _numbered(before.last[axis], graph.numbers(before.ids)),
                _numbered(after.first[axis], graph.numbers(after.ids)),
            )
            found.append(between(*planes, bins=tiling.bins))
    return found


def _numbered(plane: Plane, numbers: NDArray[np.int64]) -> Plane:
    return replace(plane, labels=numbers[plane.labels])


def objects_of(
    graph: RegionGraph, standing: NDArray[np.int64], least: int
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the number of the object of each fragment, after 0 for none, and the voxels of each object.

    `standing` (n + 1,): the fragment that stands for the object of each, 0 first. Objects are numbered from 1 in the
    order of their first fragments; those of fewer than `least` voxels are dropped.
    """
    _, first, place = np.unique(standing, return_index=True, return_inverse=True)
    sizes = np.bincount(place, graph.voxels).astype(np.int64)
    kept = sizes >= max(1, least)
    kept[place[0]] = False
    order = np.argsort(np.where(kept, first, len(standing)), kind="stable")[: int(kept.sum())]
    numbers = np.zeros(len(sizes), np.uint64)
    numbers[order] = np.arange(1, len(order) + 1)
    return numbers[place], sizes[order]
