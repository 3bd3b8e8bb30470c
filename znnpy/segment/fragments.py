"""Cuts a boundary map into fragments: a watershed from the places that are deepest inside, far from boundaries.

A net's gaps in a boundary do not join what lies on either side, as long as they are narrower than the objects. Most
objects are several fragments; `agglomeration.py` joins them.
"""

from __future__ import annotations

from typing import Any

import cc3d
import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.data.flooding import BUCKETS, CLOSED, flood

from znnpy.data.volume import Triple64

Float32 = NDArray[np.float32]
Labels = NDArray[np.int32]
SMOOTH = 2.0  # voxels (along y and x) by which distances are smoothed: fewer seeds in what is rough
DEEPER = 0.0125  # by which a voxel of distance lowers the boundary map: less than noise of nets near boundaries
FLAT = 2.5  # voxels so many times longer along z than along y and x show sections, not a volume


def is_flat(resolution: Triple64) -> bool:
    """Return whether voxels of a size (z, y, x) are so long along z that distances count within sections only."""
    return resolution[0] >= FLAT * max(resolution[1:])


def fragments(height: Float32, threshold: float, resolution: Triple64) -> Labels:
    """Return fragments of a map (z, y, x) of boundaries, numbered from 1; all 0 where nothing is below `threshold`.

    Seeds are the places that lie farthest from voxels above `threshold`. Of thick sections (`is_flat`) each is cut by
    itself. `resolution`: voxel size z, y, x.
    """
    return sown(height, threshold, resolution)[0]


def sown(
    height: Float32, threshold: float, resolution: Triple64
) -> tuple[Labels, NDArray[np.int64]]:
    """Return `fragments`, and where the seed of each begins: the index of its first voxel in the map, (fragments,)."""
    if not is_flat(resolution):
        depth, seeds = _landscape(height, threshold, resolution)
        return flooded(depth, seeds), first_voxels(seeds)
    found, labels, first = 0, np.empty(height.shape, np.int32), []
    for z in range(len(height)):
        part = slice(z, z + 1)
        depth, seeds = _landscape(height[part], threshold, resolution)
        labels[part] = flooded(depth, np.where(seeds > 0, seeds + found, 0))
        first.append(first_voxels(seeds) + z * seeds.size)
        found += len(first[-1])
    return labels, np.concatenate(first)


def first_voxels(seeds: NDArray[Any]) -> NDArray[np.int64]:
    """Return for each seed, numbered from 1, the index of its first voxel."""
    places = np.flatnonzero(seeds)
    first = np.zeros(int(seeds.max()) + 1, np.int64)
    # Of a seed's voxels the last one written stays.
    first[seeds.reshape(-1)[places[::-1]]] = places[::-1]
    return first[1:]


def _landscape(
    height: Float32, threshold: float, resolution: Triple64
) -> tuple[Float32, NDArray[Any]]:
    """Return what is flooded, and from where: the boundary map, a little deeper the farther from boundaries.

    Where it is level, a fragment would else fill the next one through any gap before that one has begun.
    """
    from scipy import ndimage  # a third of a second to import

    finest = min(resolution[1:])
    steps = [size / finest for size in resolution]
    free = height < threshold
    distance = ndimage.distance_transform_edt(free, steps).astype(np.float32)
    if len(height) == 1:
        steps[0] = np.inf  # nothing to smooth along z
    ndimage.gaussian_filter(distance, [SMOOTH / step for step in steps], output=distance)
    distance *= free  # else what is smoothed may be highest beyond the boundary
    highest = ndimage.maximum_filter(distance, 3) == distance
    seeds = cc3d.connected_components(highest & free, connectivity=26)
    return height - np.float32(DEEPER) * distance, seeds


def flooded(
    height: Float32, seeds: NDArray[Any], inside: NDArray[np.bool_] | None = None
) -> Labels:
    """Return `seeds` spread over what is `inside` (None: all), from low to high, over faces; all (z, y, x)."""
    within = (slice(1, -1),) * 3
    framed = [n + 2 for n in height.shape]
    labels = np.full(framed, CLOSED, np.int32)
    labels[within] = seeds if inside is None else np.where(inside | (seeds > 0), seeds, CLOSED)
    reached = np.zeros(framed, np.float32)
    reached[within] = height
    lowest, highest = (float(end(height)) for end in (np.min, np.max))
    scale = BUCKETS / (highest - lowest) if highest > lowest else 0.0
    room: list[NDArray[Any]] = [np.empty((2, BUCKETS), np.int64)]
    room += [np.empty(labels.size, kind) for kind in (np.int64, np.float32, np.int64, np.int64)]
    addresses = (reached.ctypes.data, labels.ctypes.data)
    flood(*addresses, *framed, lowest, scale, *(it.ctypes.data for it in room))
    found = labels[within]
    return found if inside is None else np.maximum(found, 0)
