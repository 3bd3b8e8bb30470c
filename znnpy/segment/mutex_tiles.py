"""A mutex watershed tile by tile: fragments of each tile with what surrounds it, then one of the fragments of all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.data.volume import Triple
from znnpy.errors import VolumeError
from znnpy.segment.bioimage import bioimage_cpp
from znnpy.segment.bonds import Bonds, strongest
from znnpy.segment.faces import Faces
from znnpy.segment.fragments import Labels, first_voxels
from znnpy.segment.region_graph import RegionGraph
from znnpy.segment.tiles import Part, Read, Tiling, index_in
from znnpy.segment.wanted import Float32, Wanted, near_channels

Fragments = Callable[[Triple, Triple], tuple[Labels, NDArray[np.int64]]]
"""Returns labels int32 of a region, and the fragment of each, as `Part` names it, after -1 for none."""


def cut(tiling: Tiling, place: Triple, read: Read, wanted: Wanted) -> tuple[Labels, Part]:
    """Return the fragments of a tile (z, y, x), numbered from 1 within it; what lies between them, `met` says."""
    lower, upper = tiling.window(place)
    found = clusters(read(lower, upper), wanted)
    begin, end = tiling.region(place)
    inner = tuple(slice(a - n, b - n) for a, b, n in zip(begin, end, lower, strict=True))
    _, number = np.unique(found[inner], return_inverse=True)
    own: Labels = np.asarray(number.reshape(found[inner].shape) + 1, np.int32)
    ids = index_in(tiling.extent, begin, own.shape, first_voxels(own))
    voxels = np.bincount(own.reshape(-1))[1:].astype(np.int64)
    nothing = Faces(np.zeros((0, 2), np.int64), np.zeros(0), np.zeros(0))
    return own, Part(ids, voxels, nothing, (), ())


def clusters(values: Float32, wanted: Wanted) -> NDArray[np.uint64]:
    """Return the mutex watershed of affinities (C, z, y, x), numbered from 1 (Wolf et al. 2018).

    Nearest affinities attract, others repel, surest first. An attraction a and a repulsion b are equally sure when
    a - threshold = threshold - b.
    """
    near, far = kinds_of(wanted)
    edges = np.concatenate([values[near], np.float32(2 * wanted.threshold) - values[far]])
    order = [wanted.offsets[index] for index in (*near, *far)]
    solve = bioimage_cpp("segmentation").mutex_watershed
    return np.asarray(solve(edges, order, len(near)), np.uint64)


def kinds_of(wanted: Wanted) -> tuple[list[int], list[int]]:
    """Return the channels that attract and those that repel; raise VolumeError where there are not both."""
    offsets = wanted.offsets
    near = near_channels(offsets)
    far = [index for index in range(len(offsets)) if index not in near]
    axes = {axis for index in near for axis in range(3) if offsets[index][axis]}
    if len(axes) < 3 or not far:
        raise VolumeError(
            f"the mutex watershed needs affinities to a next neighbour along each axis and to farther "
            f"ones, but the offsets are {[list(offset) for offset in offsets]}; train with more "
            "data.target offsets, or use --method components"
        )
    return near, far


def ready(wanted: Wanted) -> None:
    """Raise VolumeError where affinities are not those that it takes, or its package is missing."""
    kinds_of(wanted)
    bioimage_cpp("segmentation")


def met(tiling: Tiling, place: Triple, read: Read, fragments: Fragments, wanted: Wanted) -> Bonds:
    """Return the bonds of all edges that begin in a tile, between fragments as `Part` names them."""
    lower, upper = tiling.region(place)
    values = read(lower, upper)
    low, high = _reach(tiling, lower, upper, wanted)
    labels, names = fragments(low, high)
    near, _ = kinds_of(wanted)
    found, count = [], len(names)
    for channel, offset in enumerate(wanted.offsets):
        begin = [max(a, -step) for a, step in zip(lower, offset, strict=True)]
        end = [min(b, n - step) for b, n, step in zip(upper, tiling.extent, offset, strict=True)]
        if any(a >= b for a, b in zip(begin, end, strict=True)):
            continue
        here = _within(labels, begin, end, low)
        there = _within(labels, np.add(begin, offset), np.add(end, offset), low)
        edges = _within(values[channel], begin, end, lower)
        apart = here != there
        pairs = np.stack([here[apart], there[apart]], axis=1).astype(np.int64)
        pairs, sure = np.sort(pairs, axis=1), edges[apart]
        none = np.full(len(sure), -np.inf, np.float32)
        if channel in near:
            bonds = Bonds(pairs, sure, none)
        else:
            bonds = Bonds(pairs, none, np.float32(2 * wanted.threshold) - sure)
        found.append(strongest([bonds], count))
    whole = strongest(found, count)
    return Bonds(np.sort(names[whole.pairs], axis=1), whole.attraction, whole.repulsion)


def by_mutex(graph: RegionGraph, wanted: Wanted) -> NDArray[np.int64]:
    """Return a number for each fragment that those of its object share, 0 for none: the mutex watershed of a graph.

    Surest bonds first; of equally sure ones repulsions, so that what a tile has parted stays apart.
    """
    bonds = graph.bonds
    assert bonds is not None
    drawn, parted = (np.isfinite(it) for it in (bonds.attraction, bonds.repulsion))
    weights = np.concatenate([bonds.attraction[drawn], bonds.repulsion[parted]])
    attracts = np.arange(len(weights)) < np.count_nonzero(drawn)
    rank = np.empty(len(weights), np.float64)
    rank[np.lexsort((attracts, -weights))] = np.arange(len(weights), 0, -1)
    made = bioimage_cpp("graph").UndirectedGraph
    solve = bioimage_cpp("graph.mutex_watershed").mutex_watershed_clustering
    of_all = made.from_edges(len(graph.voxels), bonds.pairs[drawn])
    found = solve(of_all, rank[attracts], bonds.pairs[parted].astype(np.uint64), rank[~attracts])
    return np.asarray(found, np.int64)


def _reach(tiling: Tiling, lower: Triple, upper: Triple, wanted: Wanted) -> tuple[Triple, Triple]:
    """Return the region in which edges end that begin in a region."""
    below = [max(0, a + min(0, *steps)) for a, *steps in zip(lower, *wanted.offsets, strict=True)]
    above = [
        min(n, b + max(0, *steps))
        for n, b, *steps in zip(tiling.extent, upper, *wanted.offsets, strict=True)
    ]
    return (below[0], below[1], below[2]), (above[0], above[1], above[2])


def _within(array: NDArray[Any], begin: Any, end: Any, origin: Triple) -> NDArray[Any]:
    """Return the region of a volume that an array at `origin` holds."""
    return array[tuple(slice(a - n, b - n) for a, b, n in zip(begin, end, origin, strict=True))]
