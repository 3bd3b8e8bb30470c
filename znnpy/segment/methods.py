"""Segments predictions by agglomeration or multicut, components (`metrics.segmentation`), seeded or mutex watershed.

All return new labels uint32 or uint64 (z, y, x), 0 unassigned. Probabilities are float32, 0 to 1.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.data.volume import Triple, Triple64
from znnpy.errors import VolumeError
from znnpy.metrics import from_affinity, from_boundary
from znnpy.segment.agglomeration import joined
from znnpy.segment.fragments import flooded
from znnpy.segment.region_graph import RegionGraph, graph_of, objects_of
from znnpy.segment.tiles import Tiling, box, cut

Float32 = NDArray[np.float32]
Labels = NDArray[Any]
SURE = 0.5  # of a boundary map, 1 - probability: above it nothing is foreground
SURER = 0.4  # share of the threshold below which a seed's voxels lie: fragments cost little, wrong ones stay
LEAST = 1e-3  # of a mean boundary, for its logit
WHEELS = "x86_64"  # the machine that bioimage-cpp has wheels for


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
    return _of_fragments(by_mean, False, values, kind, threshold, offsets, min_size, resolution)


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
    return _of_fragments(by_mean, True, values, kind, threshold, offsets, min_size, resolution)


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
    _bioimage_cpp("graph.multicut")  # before fragments are made
    return _of_fragments(by_cuts, False, values, kind, threshold, offsets, min_size, resolution)


def by_mean(graph: RegionGraph, level: float, min_size: int) -> NDArray[np.int64]:
    """Return the fragment that stands for the object of each of a graph, as `agglomeration.joined`."""
    return joined(graph.faces, graph.voxels, level, min_size)


def by_cuts(graph: RegionGraph, level: float, min_size: int) -> NDArray[np.int64]:
    """Return the number of the object of each fragment of a graph, and 0 for none, by `multicut`."""
    solvers = _bioimage_cpp("graph.multicut")
    made = _bioimage_cpp("graph").UndirectedGraph
    found = graph.faces
    join = found.size * (_logit(np.asarray(level)) - _logit(found.mean))
    problem = solvers.MulticutObjective(made.from_edges(len(graph.voxels), found.pairs), join)
    steps = [solvers.GreedyAdditiveMulticut(), solvers.KernighanLinMulticut()]
    objects = solvers.ChainedMulticutSolvers(steps).optimize(problem)
    return np.asarray(objects, np.int64)


def _logit(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    bounded = np.clip(probability, LEAST, 1 - LEAST)
    return np.log(bounded) - np.log1p(-bounded)


def _of_fragments(
    solve: Callable[[RegionGraph, float, int], NDArray[np.int64]],
    bins: bool,
    values: Float32,
    kind: str,
    threshold: float,
    offsets: Sequence[Triple],
    min_size: int,
    resolution: Triple64,
) -> Labels:
    """Return the objects that a solver makes of the fragments of all tiles, which are numbered and dropped."""
    height = boundaries(values, kind, offsets)
    z, y, x = height.shape
    level = threshold if kind == "boundary" else 1 - threshold
    tiling = Tiling((z, y, x), resolution, level, bins)
    labels, parts = np.empty(height.shape, np.uint32), {}
    for place in tiling.places:
        own, parts[place] = cut(tiling, place, lambda a, b: height[box(a, b)], SURER)
        labels[box(*tiling.region(place))] = own
    graph = graph_of(tiling, parts.__getitem__)
    numbers, _ = objects_of(graph, solve(graph, level, min_size), min_size)
    for place, part in parts.items():
        inside = box(*tiling.region(place))
        labels[inside] = numbers[graph.numbers(part.ids)][labels[inside]]
    return labels


def components(
    values: Float32, kind: str, threshold: float, offsets: Sequence[Triple], min_size: int = 0
) -> Labels:
    """Label voxels joined over faces where boundaries are below, foreground or affinities above, `threshold`.

    `values` (C, z, y, x); C is 1 but for affinities, which must hold one step along each axis.
    """
    if kind == "affinity":
        return from_affinity(values, threshold, offsets=offsets)
    inside = values[0] if kind == "boundary" else np.negative(values[0])
    return from_boundary(inside, threshold if kind == "boundary" else -threshold)


def watershed(
    values: Float32, kind: str, threshold: float, offsets: Sequence[Triple], min_size: int
) -> Labels:
    """Flood the boundary map from components of at least `min_size` voxels until they meet.

    Boundaries of affinities are 1 - the least to a nearest neighbour. Boundaries and affinities
    are flooded everywhere, a foreground only where it is above 0.5 (or `threshold`, if lower).
    """
    height = boundaries(values, kind, offsets)
    seeds = from_boundary(
        height, threshold if kind == "boundary" else 1 - threshold, min_size=min_size
    )
    if not seeds.any():
        return seeds
    inside = height < max(SURE, 1 - threshold) if kind == "foreground" else None
    return flooded(height, seeds, inside)


def mutex(
    values: Float32, kind: str, threshold: float, offsets: Sequence[Triple], min_size: int = 0
) -> Labels:
    """Segment by the mutex watershed (Wolf et al. 2018): nearest affinities attract, others repel, surest first.

    An attraction a and a repulsion b are equally sure when a - threshold = threshold - b.
    """
    near = [index for index, offset in enumerate(offsets) if sum(map(abs, offset)) == 1]
    far = [index for index in range(len(offsets)) if index not in near]
    axes = {axis for index in near for axis in range(3) if offsets[index][axis]}
    if len(axes) < 3 or not far:
        raise VolumeError(
            f"the mutex watershed needs affinities to a next neighbour along each axis and to farther "
            f"ones, but the offsets are {[list(offset) for offset in offsets]}; train with more "
            "data.target offsets, or use --method components"
        )
    edges = np.concatenate([values[near], np.float32(2 * threshold) - values[far]])
    order = [offsets[index] for index in (*near, *far)]
    found: Labels = _bioimage_cpp("segmentation").mutex_watershed(edges, order, len(near))
    return found


def boundaries(values: Float32, kind: str, offsets: Sequence[Triple]) -> Float32:
    """Return a map (z, y, x) that is high on boundaries."""
    if kind == "boundary":
        return np.asarray(values[0])
    near = [index for index, offset in enumerate(offsets) if sum(map(abs, offset)) == 1]
    if kind == "affinity" and not near:
        raise VolumeError("no offset of the affinities is a step to a next neighbour")
    inside = values[0] if kind == "foreground" else values[near].min(axis=0)
    return np.asarray(np.float32(1) - inside)


def _bioimage_cpp(module: str) -> Any:
    try:
        return import_module(f"bioimage_cpp.{module}")
    except ImportError as error:
        machine = platform.machine()
        built = f" (no wheel for {machine}: pip builds it, with a C++ compiler)"
        raise VolumeError(
            "mutex watershed and multicut need the package bioimage-cpp, which is not installed: "
            f'pip install "znnpy[mutex]"{"" if machine == WHEELS else built}'
        ) from error
