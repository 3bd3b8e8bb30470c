"""Connected components tile by tile: those of each tile, and which of them touch those of the next one.

Joined over the faces between tiles they are exactly the components of the whole volume, whatever the tiles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.data.volume import Triple
from znnpy.metrics import from_affinity, from_boundary
from znnpy.metrics.segmentation import single_step
from znnpy.segment.faces import Faces
from znnpy.segment.fragments import Labels, first_voxels
from znnpy.segment.region_graph import RegionGraph
from znnpy.segment.tiles import Part, Plane, Read, Tiling, index_in, plane_of
from znnpy.segment.wanted import Wanted, boundaries

PAIR = 2  # voxels of the smallest object of affinities: one that is joined to none is none


def cut(tiling: Tiling, place: Triple, read: Read, wanted: Wanted) -> tuple[Labels, Part]:
    """Return the components of a tile (z, y, x), numbered from 1 within it, and those that touch its faces.

    Components that are too small to be objects are left out, but where they may go on in the next tile.
    """
    values = read(*tiling.region(place))
    if wanted.kind == "affinity":
        found = from_affinity(values, wanted.threshold, offsets=wanted.offsets, min_size=0)
        return _part(tiling, place, found, values, wanted, max(PAIR, wanted.min_size))
    sign = 1 if wanted.kind == "boundary" else -1
    found = from_boundary(sign * values[0], sign * wanted.threshold)
    return _part(tiling, place, found, values, None, wanted.min_size)


def cut_seeds(tiling: Tiling, place: Triple, read: Read, wanted: Wanted) -> tuple[Labels, Part]:
    """Return the components of a tile's boundary map, from which a watershed floods, as `cut` does."""
    values = read(*tiling.region(place))
    height = boundaries(values, wanted.kind, wanted.offsets)
    found = from_boundary(height, wanted.level)
    return _part(tiling, place, found, values, None, wanted.min_size)


def by_touch(graph: RegionGraph, wanted: Wanted) -> NDArray[np.int64]:
    """Return the number of the component of each fragment, and 0 for none; the same for all that touch."""
    from scipy.sparse import coo_array  # slow to import
    from scipy.sparse.csgraph import connected_components

    pairs, count = graph.faces.pairs, len(graph.voxels)
    touching = coo_array((np.ones(len(pairs), np.int8), pairs.T), (count, count))
    _, found = connected_components(touching, directed=False)
    # Fragment 0, which is none, touches nothing.
    numbers = np.asarray(found, np.int64)
    if wanted.kind == "affinity":
        numbers[np.bincount(numbers, graph.voxels)[numbers] < PAIR] = found[0]
    return numbers


def _part(
    tiling: Tiling,
    place: Triple,
    found: NDArray[Any],
    values: NDArray[np.float32],
    affinities: Wanted | None,
    least: int,
) -> tuple[Labels, Part]:
    """Return components without those that are too small, and what they bring; `affinities`: joined only by these."""
    sizes = np.bincount(found.reshape(-1))
    kept = sizes >= max(1, least)
    for axis in range(3):
        for at in (0, -1):
            kept[np.unique(plane_of(found, at, axis))] = True
    kept[0] = False
    own = np.where(kept, np.cumsum(kept), 0).astype(np.int32)[found]
    ids = index_in(tiling.extent, tiling.region(place)[0], own.shape, first_voxels(own))
    planes: list[list[Plane]] = []
    for at, sign in ((0, -1), (-1, 1)):
        labels = [plane_of(own, at, axis) for axis in range(3)]
        if affinities is not None:
            for axis, plane in enumerate(labels):
                step = single_step(affinities.offsets, axis)
                # Its affinity stands on this side of the face, else on the other.
                if step is not None and step[axis] == sign:
                    joined = values[affinities.offsets.index(step)] > affinities.threshold
                    plane[~plane_of(joined, at, axis)] = 0
        planes.append([Plane(it, np.zeros(it.shape, np.float32)) for it in labels])
    nothing = Faces(np.zeros((0, 2), np.int64), np.zeros(0), np.zeros(0))
    return own, Part(ids, sizes[kept].astype(np.int64), nothing, tuple(planes[0]), tuple(planes[1]))
