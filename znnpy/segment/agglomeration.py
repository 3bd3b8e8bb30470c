"""Joins fragments into objects, least boundary first, by its mean over all faces between two (average linkage)."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Faces:
    """What lies between fragments: `pairs` (N, 2) of their numbers, the lower first, each once.

    `total`: sums of the boundary over the voxel faces of a pair, of which there are `size`; both float64 (N,).
    """

    pairs: NDArray[np.int64]
    total: Float64
    size: Float64

    @property
    def mean(self) -> Float64:
        """The mean boundary of each pair."""
        return self.total / self.size


def faces(labels: NDArray[Any], height: NDArray[np.float32]) -> Faces:
    """Return the faces of fragments on a map of boundaries, both (z, y, x); label 0 is none.

    The boundary between two voxels is the higher one of both: walls may lie on either side.
    """
    count = int(labels.max()) + 1
    keys, values = [], []
    for axis in range(3):
        along, high = np.moveaxis(labels, axis, 0), np.moveaxis(height, axis, 0)
        before, after = along[:-1], along[1:]
        apart = (before != after) & (before > 0) & (after > 0)
        one, other = before[apart].astype(np.int64), after[apart].astype(np.int64)
        keys.append(np.minimum(one, other) * count + np.maximum(one, other))
        values.append(np.maximum(high[:-1][apart], high[1:][apart]))
    key, place = np.unique(np.concatenate(keys), return_inverse=True)
    total, size = (
        np.bincount(place, weight, len(key)).astype(np.float64)
        for weight in (np.concatenate(values), None)
    )
    return Faces(np.stack(np.divmod(key, count), axis=1), total, size)


def joined(
    found: Faces, sizes: NDArray[np.int64], threshold: float, least: int = 0
) -> NDArray[np.int64]:
    """Return for each fragment, and 0, one that stands for its object; `sizes`: voxels of each, (fragments + 1,).

    The two with the least mean boundary become one, again and again, while it is below `threshold`, or one of them
    has fewer than `least` voxels.
    """
    beside: list[dict[int, tuple[float, float]]] = [{} for _ in sizes]
    queue = []
    for (a, b), total, size in zip(
        found.pairs.tolist(), found.total.tolist(), found.size.tolist(), strict=True
    ):
        beside[a][b] = beside[b][a] = total, size
        if total / size < threshold or least:
            queue.append((total / size, a, b))
    heapq.heapify(queue)
    into, voxels = list(range(len(sizes))), sizes.tolist()
    while queue:
        mean, a, b = heapq.heappop(queue)
        total, size = beside[a].get(b, (np.inf, 1.0))
        if total / size != mean:
            continue  # of a pair that is no more, or has other faces by now
        if mean >= threshold and min(voxels[a], voxels[b]) >= least:
            continue
        # The one with fewer neighbours moves, so that each moves rarely.
        if len(beside[a]) < len(beside[b]):
            a, b = b, a
        into[b] = a
        voxels[a] += voxels[b]
        del beside[a][b]
        for c, (total, size) in beside[b].items():
            if c != a:
                more, larger = beside[a].get(c, (0.0, 0.0))
                faces_now = total + more, size + larger
                beside[a][c] = beside[c][a] = faces_now
                del beside[c][b]
                if faces_now[0] / faces_now[1] < threshold or least:
                    heapq.heappush(queue, (faces_now[0] / faces_now[1], min(a, c), max(a, c)))
        beside[b].clear()
    return _roots(np.array(into))


def _roots(into: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each fragment ends by going on to what it became part of."""
    while (further := into[into] != into).any():
        into = np.where(further, into[into], into)
    return into
