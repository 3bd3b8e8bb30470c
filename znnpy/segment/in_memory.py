"""Objects of arrays by tiles, as `objects_by_blocks` finds them in files: both give the same."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.data.volume import Triple, Triple64
from znnpy.registry import resolved
from znnpy.segment.bonds import Bonds
from znnpy.segment.fragments import Labels
from znnpy.segment.method import Method
from znnpy.segment.region_graph import graph_of, objects_of
from znnpy.segment.tiles import Part, Tiling, box, tiling_of
from znnpy.segment.wanted import Float32, Wanted


def in_tiles(
    method: Method, values: Float32, wanted: Wanted, resolution: Triple64 = (1.0, 1.0, 1.0)
) -> NDArray[Any]:
    """Return the objects of probabilities (C, z, y, x) by a method with `join`, uint32 (z, y, x), 0 for none.

    `resolution`: voxel size z, y, x. Raises VolumeError for what the method does not take.
    """
    z, y, x = values.shape[1:]
    return _Objects(
        method, tiling_of(method, (z, y, x), resolution, wanted.level), values, wanted
    ).found()


class _Objects:
    def __init__(self, method: Method, tiling: Tiling, values: Float32, wanted: Wanted) -> None:
        self._method, self._tiling, self._values, self._wanted = method, tiling, values, wanted
        self._labels = np.zeros(values.shape[1:], np.int32)
        self._parts: dict[Triple, Part] = {}

    def found(self) -> NDArray[Any]:
        tiling, wanted = self._tiling, self._wanted
        for place in tiling.places:
            own, self._parts[place] = resolved(self._method.cut)(tiling, place, self._read, wanted)
            self._labels[box(*tiling.region(place))] = own
        graph = graph_of(
            tiling, self._parts.__getitem__, self._bonds if self._method.meet else None
        )
        numbers, _ = objects_of(graph, resolved(self._method.join)(graph, wanted), wanted.min_size)
        for place, part in self._parts.items():
            inside = box(*tiling.region(place))
            self._labels[inside] = numbers[graph.numbers(part.ids)][self._labels[inside]]
        labels = self._grown() if self._method.grow else self._labels
        return labels.astype(np.uint32)

    def _read(self, lower: Triple, upper: Triple) -> Float32:
        return self._values[:, *box(lower, upper)]

    def _bonds(self, place: Triple) -> Bonds:
        meet = resolved(self._method.meet)
        found: Bonds = meet(self._tiling, place, self._read, self._fragments, self._wanted)
        return found

    def _fragments(self, lower: Triple, upper: Triple) -> tuple[Labels, NDArray[np.int64]]:
        """Return the fragments of a region, while labels are those of the tiles."""
        labels = np.zeros(np.subtract(upper, lower), np.int32)
        names = [np.full(1, -1)]
        for place in self._tiling.meeting(lower, upper):
            here, there = self._tiling.shared(place, lower, upper)
            begin, end = self._tiling.region(place)
            own = self._labels[box(begin, end)][there]
            labels[here] = np.where(own > 0, own + sum(map(len, names)) - 1, 0)
            names.append(self._parts[place].ids)
        return labels, np.concatenate(names)

    def _grown(self) -> NDArray[Any]:
        grow, grown = resolved(self._method.grow), np.zeros_like(self._labels)
        for place in self._tiling.places:
            own, numbers = grow(self._tiling, place, self._read, self._seeds, self._wanted)
            grown[box(*self._tiling.region(place))] = numbers[own]
        return grown

    def _seeds(self, lower: Triple, upper: Triple) -> tuple[Labels, NDArray[np.uint64]]:
        """Return the objects of a region, once labels are their numbers."""
        numbers, labels = np.unique(self._labels[box(lower, upper)], return_inverse=True)
        none = 1 if len(numbers) == 0 or numbers[0] > 0 else 0
        named = np.concatenate([np.zeros(none, np.uint64), numbers.astype(np.uint64)])
        return (labels + none).reshape(np.subtract(upper, lower)).astype(np.int32), named
