"""Segments predictions by agglomeration or multicut, components (`metrics.segmentation`), seeded or mutex watershed.

All return new labels uint32 or uint64 (z, y, x), 0 unassigned. Probabilities are float32, 0 to 1. Volumes larger than a
tile are cut and joined as they are block by block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.data.volume import Triple, Triple64
from znnpy.metrics import from_affinity, from_boundary
from znnpy.segment.agglomeration import joined
from znnpy.segment.bioimage import bioimage_cpp
from znnpy.segment.fragments import first_voxels, flooded
from znnpy.segment.growing import inside
from znnpy.segment.in_memory import in_tiles
from znnpy.segment.method import METHODS
from znnpy.segment.mutex_tiles import clusters
from znnpy.segment.region_graph import RegionGraph
from znnpy.segment.wanted import Float32, Wanted, boundaries

Labels = NDArray[Any]
LEAST = 1e-3  # of a mean boundary, for its logit


def agglomerate(
    values: Float32,
    kind: str,
    threshold: float,
    offsets: Sequence[Triple],
    min_size: int,
    *,
    resolution: Triple64 = (1.0, 1.0, 1.0),
) -> Labels:
    """Join fragments (`fragments.py`) where the mean boundary between them is below `threshold`.

    Affinities join above it; their boundary is 1 - the least to a nearest neighbour. Everything is assigned: objects
    of fewer than `min_size` voxels join the neighbour with the least boundary. `values` (C, z, y, x), C 1 but for
    affinities; `resolution`: voxel size z, y, x.
    """
    wanted = Wanted(kind, threshold, tuple(offsets), min_size)
    return in_tiles(METHODS["agglomerate"], values, wanted, resolution)


def median(
    values: Float32,
    kind: str,
    threshold: float,
    offsets: Sequence[Triple],
    min_size: int,
    *,
    resolution: Triple64 = (1.0, 1.0, 1.0),
) -> Labels:
    """Join fragments as `agglomerate` does, by the median boundary between them."""
    wanted = Wanted(kind, threshold, tuple(offsets), min_size)
    return in_tiles(METHODS["median"], values, wanted, resolution)


def multicut(
    values: Float32,
    kind: str,
    threshold: float,
    offsets: Sequence[Triple],
    min_size: int,
    *,
    resolution: Triple64 = (1.0, 1.0, 1.0),
) -> Labels:
    """Cut the graph of fragments where that costs least in all: greedily, then by Kernighan's and Lin's moves.

    A face costs the logit of its mean boundary against `threshold`, times its voxels. Otherwise as `agglomerate`.
    """
    wanted = Wanted(kind, threshold, tuple(offsets), min_size)
    solver_ready(wanted)  # before fragments are made
    return in_tiles(METHODS["multicut"], values, wanted, resolution)


def solver_ready(wanted: Wanted) -> None:
    """Raise VolumeError where there is no solver of multicuts."""
    bioimage_cpp("graph.multicut")


def by_mean(graph: RegionGraph, wanted: Wanted) -> NDArray[np.int64]:
    """Return the fragment that stands for the object of each of a graph, as `agglomeration.joined`."""
    return joined(graph.faces, graph.voxels, wanted.level, wanted.min_size)


def by_cuts(graph: RegionGraph, wanted: Wanted) -> NDArray[np.int64]:
    """Return the number of the object of each fragment of a graph, and 0 for none, by `multicut`."""
    solvers = bioimage_cpp("graph.multicut")
    made = bioimage_cpp("graph").UndirectedGraph
    found = graph.faces
    join = found.size * (_logit(np.asarray(wanted.level)) - _logit(found.mean))
    problem = solvers.MulticutObjective(made.from_edges(len(graph.voxels), found.pairs), join)
    steps = [solvers.GreedyAdditiveMulticut(), solvers.KernighanLinMulticut()]
    objects = solvers.ChainedMulticutSolvers(steps).optimize(problem)
    return np.asarray(objects, np.int64)


def _logit(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    bounded = np.clip(probability, LEAST, 1 - LEAST)
    return np.log(bounded) - np.log1p(-bounded)


def components(
    values: Float32, kind: str, threshold: float, offsets: Sequence[Triple], min_size: int = 0
) -> Labels:
    """Label voxels joined over faces where boundaries are below, foreground or affinities above, `threshold`.

    `values` (C, z, y, x); C is 1 but for affinities, which must hold one step along each axis.
    """
    if kind == "affinity":
        return _in_order(from_affinity(values, threshold, offsets=offsets))
    inside = values[0] if kind == "boundary" else np.negative(values[0])
    return from_boundary(inside, threshold if kind == "boundary" else -threshold)


def _in_order(labels: NDArray[np.uint32]) -> Labels:
    """Return labels numbered from 1 in the order of their first voxels, as those of tiles are."""
    first = first_voxels(labels)
    there = np.flatnonzero(np.bincount(labels.reshape(-1)))
    numbers = np.zeros(len(first) + 1, np.uint32)
    kept = there[there > 0]
    numbers[kept[np.argsort(first[kept - 1])]] = np.arange(1, len(kept) + 1)
    return numbers[labels]


def watershed(
    values: Float32, kind: str, threshold: float, offsets: Sequence[Triple], min_size: int
) -> Labels:
    """Flood the boundary map from components of at least `min_size` voxels until they meet.

    Boundaries of affinities are 1 - the least to a nearest neighbour. Boundaries and affinities
    are flooded everywhere, a foreground only where it is above 0.5 (or `threshold`, if lower).
    """
    wanted = Wanted(kind, threshold, tuple(offsets), min_size)
    if _is_larger(values, "watershed"):
        return in_tiles(METHODS["watershed"], values, wanted)
    height = boundaries(values, kind, offsets)
    seeds = from_boundary(height, wanted.level, min_size=min_size)
    return flooded(height, seeds, inside(height, wanted)) if seeds.any() else seeds


def mutex(
    values: Float32, kind: str, threshold: float, offsets: Sequence[Triple], min_size: int = 0
) -> Labels:
    """Segment by the mutex watershed (Wolf et al. 2018): nearest affinities attract, others repel, surest first.

    An attraction a and a repulsion b are equally sure when a - threshold = threshold - b.
    """
    wanted = Wanted(kind, threshold, tuple(offsets), min_size)
    if _is_larger(values, "mutex"):
        return in_tiles(METHODS["mutex"], values, wanted)
    return clusters(values, wanted)


def _is_larger(values: Float32, method: str) -> bool:
    return any(n > size for n, size in zip(values.shape[1:], METHODS[method].tile, strict=True))
