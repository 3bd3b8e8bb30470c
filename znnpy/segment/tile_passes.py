"""What is done to each tile, in whatever process: cut, met with its neighbours, grown, filled into a block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.data.volume import Array, Triple
from znnpy.data.writing.block_output import open_output
from znnpy.data.writing.journal import Region
from znnpy.registry import resolved
from znnpy.segment.fragments import Labels
from znnpy.segment.probabilities import scaled
from znnpy.segment.tile_work import Work
from znnpy.segment.tiles import Read
from znnpy.segment.wanted import Float32


def cut_tile(work: Work, place: Triple) -> float:
    """Cut a tile and keep it; return the largest probability that was read."""
    highest = [0.0]
    with _reading(work, highest) as read:
        labels, part = resolved(work.passes.cut)(work.tiling, place, read, work.wanted)
    work.store.write(place, labels, part, highest[0])
    return highest[0]


def meet_tile(work: Work, place: Triple) -> None:
    """Find what lies between the fragments of a tile, which is cut as its neighbours are, and keep it."""

    def fragments(lower: Triple, upper: Triple) -> tuple[Labels, NDArray[np.int64]]:
        return _labels(work, lower, upper, work.store.ids, np.int64(-1))

    with _reading(work, [0.0]) as read:
        bonds = resolved(work.passes.meet)(work.tiling, place, read, fragments, work.wanted)
    work.store.write_bonds(place, bonds)


def grow_tile(work: Work, place: Triple) -> None:
    """Make the labels of a tile from the objects of all fragments, which are settled, and keep them."""

    def seeds(lower: Triple, upper: Triple) -> tuple[Labels, NDArray[np.uint64]]:
        return _labels(work, lower, upper, lambda it: work.store.numbers(it)[1:], np.uint64(0))

    with _reading(work, [0.0]) as read:
        own, numbers = resolved(work.passes.grow)(work.tiling, place, read, seeds, work.wanted)
    work.store.write_grown(place, own, numbers)


def filled(work: Work, region: Region) -> Array:
    """Return the labels of a block, uint64 (1, z, y, x)."""
    lower, upper = region
    labels = np.zeros(np.subtract(upper, lower), np.uint64)
    for place in work.tiling.meeting(lower, upper):
        here, there = work.tiling.shared(place, lower, upper)
        if work.passes.grow is None:
            own, numbers = work.store.labels(place), work.store.numbers(place)
        else:
            own, numbers = work.store.grown(place)
        labels[here] = numbers[own[there]]
    return labels[None]


def put(work: Work, region: Region) -> int:
    """Fill a block in a worker; return the checksum of what is on the disk."""
    with open_output(work.destination, work.spec, attached=True) as output:
        return output.put(region[0], filled(work, region))


@contextmanager
def _reading(work: Work, highest: list[float]) -> Iterator[Read]:
    """Yield what reads probabilities; `highest` holds the largest that was read."""
    with work.source.opened() as volume:

        def read(lower: Triple, upper: Triple) -> Float32:
            stored = volume.read(lower, upper)[list(work.channels)]
            values = np.asarray(scaled(stored, volume), np.float32)
            highest[0] = max(highest[0], float(values.max()))
            # After reading: a file that changes meanwhile would give a tile of both.
            volume.verify()
            return values

        yield read


def _labels(
    work: Work, lower: Triple, upper: Triple, names_of: Callable[[Triple], Any], none: Any
) -> tuple[Labels, NDArray[Any]]:
    """Return labels of a region that has parts of several tiles, and what each stands for, after `none`.

    `names_of`: returns what the fragments of a tile stand for.
    """
    found = np.zeros(np.subtract(upper, lower), np.int32)
    places = work.tiling.meeting(lower, upper)
    names = [np.array([none]), *map(names_of, places)]
    kept, table = np.unique(np.concatenate(names), return_inverse=True)
    start = 1
    for place, own in zip(places, names[1:], strict=True):
        here, there = work.tiling.shared(place, lower, upper)
        numbers = np.concatenate([[0], table[start : start + len(own)]]).astype(np.int32)
        found[here] = numbers[work.store.labels(place)[there]]
        start += len(own)
    return found, kept
