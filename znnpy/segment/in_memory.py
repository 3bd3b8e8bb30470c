"""Objects of arrays by tiles, on all cores, as `objects_by_blocks` finds them in files: both give the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.data.volume import Triple, Triple64
from znnpy.registry import resolved
from znnpy.scheduler.core_count import available_cores
from znnpy.segment.bonds import Bonds
from znnpy.segment.fragments import Labels
from znnpy.segment.method import Method
from znnpy.segment.processes import each
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
        self._each(resolved(self._method.cut), self._cut)
        bonds: dict[Triple, Bonds] = {}
        if self._method.meet:
            self._each(resolved(self._method.meet), bonds.__setitem__, self._fragments)
        graph = graph_of(tiling, self._parts.__getitem__, bonds.__getitem__ if bonds else None)
        numbers, _ = objects_of(graph, resolved(self._method.join)(graph, wanted), wanted.min_size)
        for place, part in self._parts.items():
            inside = box(*tiling.region(place))
            self._labels[inside] = numbers[graph.numbers(part.ids)][self._labels[inside]]
        labels = self._grown() if self._method.grow else self._labels
        return labels.astype(np.uint32)

    def _each(
        self, make: Callable[..., Any], keep: Callable[[Triple, Any], None], *more: Any
    ) -> None:
        """Let each tile be made by a function of a `Method`; `more`: what that is told besides."""

        def made(place: Triple) -> Any:
            return make(self._tiling, place, self._read, *more, self._wanted)

        # With what surrounds them, tiles at work are no more voxels than the volume: that much memory is there.
        fitting = max(1, self._labels.size // self._tiling.most_voxels)
        each(self._tiling.places, made, keep, threads=min(available_cores(), fitting))

    def _cut(self, place: Triple, found: tuple[Labels, Part]) -> None:
        self._labels[box(*self._tiling.region(place))], self._parts[place] = found

    def _read(self, lower: Triple, upper: Triple) -> Float32:
        return self._values[:, *box(lower, upper)]

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
        grown = np.zeros_like(self._labels)

        def keep(place: Triple, found: tuple[Labels, NDArray[np.uint64]]) -> None:
            own, numbers = found
            grown[box(*self._tiling.region(place))] = numbers[own]

        self._each(resolved(self._method.grow), keep, self._seeds)
        return grown

    def _seeds(self, lower: Triple, upper: Triple) -> tuple[Labels, NDArray[np.uint64]]:
        """Return the objects of a region, once labels are their numbers."""
        numbers, labels = np.unique(self._labels[box(lower, upper)], return_inverse=True)
        none = 1 if len(numbers) == 0 or numbers[0] > 0 else 0
        named = np.concatenate([np.zeros(none, np.uint64), numbers.astype(np.uint64)])
        return (labels + none).reshape(np.subtract(upper, lower)).astype(np.int32), named
