"""Turns the regions that tasks declare into stripes of memory with bytes (`Touched`), for those that count traffic.

A region says what a task must not run beside, which may be more than it touches: a product of some frequencies waits
for the spectra of all. Such tasks are declared as those that `divide` what they read with their like.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

import numpy as np
from numpy.typing import NDArray

from znnpy.engine.memory.regions import WHOLE, Buffer, Key, Region
from znnpy.engine.tasks.declaration import Declared
from znnpy.graph import Touched

Ints = NDArray[np.int64]
FLOAT = 4  # bytes
LINE = 64
"""Bytes in which stripes are counted: memory moves by cache lines."""

Share = tuple[float, float]
"""From where to where a task touches a region, as fractions of it."""
ALL: Share = (0.0, 1.0)


def touched(steps: Sequence[Sequence[Declared]]) -> Touched:
    """Return what the tasks of some steps touch that work, in their order.

    A buffer's bytes are shared evenly by its sections, a section's by the units in which its ranges count, and those
    of a range by its strands. Tasks that `divide` and stand together share what they read by their costs. Stripes
    lie between the bounds of all that is touched.
    """
    works = [[task for task in step if not task.what.waits] for step in steps]
    strands, sizes = _strands(works), _sizes(works)
    numbers: dict[Key, int] = {}
    rows, starts = list[tuple[int, int, int, int]](), [0]

    def note(region: Region, share: Share, written: int) -> None:
        number = numbers.setdefault(region.key, len(numbers))
        size, extent = sizes[region.buffer]
        first, last = min(region.low, extent) / extent, min(region.high, extent) / extent
        if region.strand >= 0:
            own = strands[region.as_strand(-1)]
            place = own[region.strand]
            share = place / len(own), (place + 1) / len(own)
        low, high = (round(size * (first + (last - first) * at) / LINE) for at in share)
        if low < high:
            rows.append((number, low, high, written))

    for step in works:
        for task, shares in _shares(step):
            for region in task.reads:
                note(region, shares.get(region, ALL), 0)
            for region in task.writes:
                note(region, ALL, 1)
            starts.append(len(rows))
    return _in_stripes(np.array(rows, np.int64).reshape(-1, 4), np.array(starts), len(numbers))


def _in_stripes(rows: Ints, starts: Ints, keys: int) -> Touched:
    """Return accesses (key, low, high, written) of lines as runs of stripes."""
    key, low, high, written = rows.T
    by_key = np.argsort(key, kind="stable")
    ends = np.searchsorted(key[by_key], np.arange(keys + 1))
    first, last = np.zeros((2, len(rows)), np.int64)
    sizes, known = [np.zeros(0)], 0
    for begin, end in pairwise(ends.tolist()):
        own = by_key[begin:end]
        bounds = np.unique(np.concatenate([low[own], high[own]]))
        first[own] = known + np.searchsorted(bounds, low[own])
        last[own] = known + np.searchsorted(bounds, high[own])
        sizes.append(np.diff(bounds) * float(LINE))
        known += max(len(bounds) - 1, 0)
    offsets = np.concatenate([[0], np.cumsum(last - first)])
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], last - first)
    stripes = np.repeat(first, last - first) + within
    return Touched(
        offsets[starts], stripes, np.repeat(written, last - first), np.concatenate(sizes)
    )


def _shares(step: Sequence[Declared]) -> Iterator[tuple[Declared, dict[Region, Share]]]:
    """Yield tasks with the share that each takes of a region that it divides with its like, if it does."""
    for _, together in groupby(step, lambda task: task.what):
        tasks = list(together)
        seconds, places = defaultdict[Region, float](float), list[dict[Region, float]]()
        for task in tasks:
            own = set(task.reads).difference(task.writes) if task.divides else ()
            places.append({region: seconds[region] for region in own})
            for region in own:
                seconds[region] += task.cost
        for task, before in zip(tasks, places, strict=True):
            yield (
                task,
                {
                    region: (start / seconds[region], (start + task.cost) / seconds[region])
                    for region, start in before.items()
                },
            )


def _strands(steps: Sequence[Sequence[Declared]]) -> dict[Region, dict[int, int]]:
    """Return by range its strands, numbered."""
    found = defaultdict[Region, dict[int, int]](dict)
    for step in steps:
        for task in step:
            for region in (*task.reads, *task.writes):
                if region.strand >= 0:
                    own = found[region.as_strand(-1)]
                    own.setdefault(region.strand, len(own))
    return found


def _sizes(steps: Sequence[Sequence[Declared]]) -> dict[Buffer, tuple[float, int]]:
    """Return by buffer the bytes of a section, and the end of the units in which its ranges count."""
    ends, sections = defaultdict[Buffer, int](lambda: 1), defaultdict[Buffer, set[int]](set)
    for step in steps:
        for task in step:
            for region in (*task.reads, *task.writes):
                sections[region.buffer].add(region.section)
                if region.high < WHOLE:
                    ends[region.buffer] = max(ends[region.buffer], region.high)
    return {
        buffer: (FLOAT * buffer.floats / len(own), ends[buffer]) for buffer, own in sections.items()
    }
