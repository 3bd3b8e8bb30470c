"""Means over overlapping windows of a whole array, plane by plane: only the planes that windows still reach are kept.

For networks whose output is resampled before it is written: sums of what windows say are made once, in the order of
the windows, and handed on as soon as no further window reaches a plane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, groupby, islice

import numpy as np
from numpy.typing import NDArray

from znnpy.data.volume import Triple
from znnpy.infer.blocks import Region, triple
from znnpy.infer.sliding_window import Windows

Float32 = NDArray[np.float32]
MEANS = 1 << 20
"""Bytes of means that are handed on at once, while all memory of the engine stands beside them."""
Run = Callable[[Sequence[Float32]], Sequence[Float32]]
"""Returns the values (k, z, y, x) of each of some windows (c, z, y, x); they are read before the next call."""


def padded(array: Float32, size: Triple) -> tuple[Float32, Region]:
    """Return an array (c, z, y, x) with 0 around it where it is smaller than a window, and where it lies in that.

    In the middle, the odd voxel behind. The array itself if it is large enough.
    """
    missing = [max(0, n - have) for n, have in zip(size, array.shape[1:], strict=True)]
    lower = triple(n // 2 for n in missing)
    inside = Region(lower, triple(a + n for a, n in zip(lower, array.shape[1:], strict=True)))
    if not any(missing):
        return array, inside
    sides = [(a, n - a) for a, n in zip(lower, missing, strict=True)]
    return np.pad(array, [(0, 0), *sides]), inside


def mean_planes(
    array: Float32,
    windows: Windows,
    channels: int,
    runs: Sequence[Run],
    rows: int = 1,
    at_once: int = 1,
) -> Iterator[Float32]:
    """Yield the weighted sums of all runs (k, planes, y, x) over all windows, from the first plane to the last.

    `array` (c, z, y, x) is no smaller than a window; each run gives `channels` values of a voxel. Each run has `rows`
    rows of windows, which begin at one plane, before the next one has them, and `at_once` windows in each call.
    """
    if windows.extent == windows.size:
        yield from _of_one(array, runs)
        return
    weight, (depth, *plane) = windows.weight, windows.extent
    shares = None if (weight == 1).all() else weight
    planes = kept_planes(windows, rows)
    sums = np.zeros((channels, planes, *plane), np.float32)
    total = np.zeros((planes, *plane), np.float32)
    first = 0
    for together in _together(windows, rows):
        start = together[0].lower[0]
        if start > first:
            yield from _taken(sums, total, start - first)
            _moved(sums, total, start - first)
            first = start
        places = [window.slices() for window in together]
        for z, y, x in places:
            total[z.start - first : z.stop - first, y, x] += weight
        for run in runs:
            for low in range(0, len(places), at_once):
                _add_all(run, array, places[low : low + at_once], shares, sums, first)
    yield from _taken(sums, total, depth - first)


def _of_one(array: Float32, runs: Sequence[Run]) -> Iterator[Float32]:
    """Yield the sums of all runs over a single window, a few planes at a time.

    Its weights would be in sums and totals alike.
    """
    first, *others = runs
    (sums,) = first([array])
    if others:
        sums = np.array(sums)  # the next run may write there
        for run in others:
            sums += run([array])[0]
    step = max(1, MEANS // sums[:, 0].nbytes)
    for low in range(0, sums.shape[1], step):
        yield sums[:, low : low + step]


def _add_all(
    run: Run,
    array: Float32,
    places: Sequence[tuple[slice, slice, slice]],
    weight: Float32 | None,
    sums: Float32,
    first: int,
) -> None:
    """Add what a run says of windows at these places, in their order, to the sums of planes from `first` on.

    No values live longer: not while the next ones are made.
    """
    found = run([array[:, *place] for place in places])
    for (z, y, x), values in zip(places, found, strict=True):
        _add(values, weight, sums[:, z.start - first : z.stop - first, y, x])


def _add(values: Float32, weight: Float32 | None, sums: Float32) -> None:
    """Add values times their weights (None: 1) to sums; products of a plane of a channel alone are in memory."""
    if weight is None:
        sums += values
        return
    for plane, share in enumerate(weight):
        # Small enough for a near cache, and to need no pages of its own.
        for own, sum_ in zip(values, sums, strict=True):
            sum_[plane] += own[plane] * share


def kept_planes(windows: Windows, rows: int) -> int:
    """Return the most planes that windows reach at once, where so many rows of them are made together."""
    starts = windows.starts[0]
    lasts = starts[rows - 1 :: rows]
    apart = (last - first for first, last in zip(starts[::rows], lasts, strict=False))
    rest = starts[-1] - starts[(len(starts) - 1) // rows * rows]
    return windows.size[0] + max([*apart, rest])


def _together(windows: Windows, rows: int) -> Iterator[list[Region]]:
    """Yield the windows of each few rows, in their order."""
    places = windows.meeting(Region((0, 0, 0), windows.extent))
    each = (list(row) for _, row in groupby(places, key=lambda window: window.lower[0]))
    while some := list(islice(each, rows)):
        yield [*chain(*some)]


def _taken(sums: Float32, total: Float32, planes: int) -> Iterator[Float32]:
    """Yield the means of the first planes, a few at a time."""
    step = max(1, MEANS // sums[:, 0].nbytes)
    for low in range(0, planes, step):
        some = slice(low, min(planes, low + step))
        yield sums[:, some] / total[some]


def _moved(sums: Float32, total: Float32, planes: int) -> None:
    """Let the planes behind the first ones take their place."""
    for array in (np.moveaxis(sums, 1, 0), total):
        left = len(array) - planes
        # One by one, as a copy of all would be made where both places overlap.
        for plane in range(left):
            array[plane] = array[plane + planes]
        array[left:] = 0
