"""Mean and deviation of volumes, read piece by piece, and the pieces that statistics are taken from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod, sqrt

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.data.moments import byte_sums, short_sums
from znnpy_kernels.machine.native import Native

from znnpy.data.values.outliers import judge, oddities
from znnpy.data.volume import Array, Triple, Volume

Float64 = NDArray[np.float64]

# Volumes above SAMPLED * SLAB bytes are judged by evenly spaced slabs instead of being read whole.
SLAB = 64 << 20
SAMPLED = 64
CACHED = 1 << 15  # values that are summed up at a time: in float64 they stay in the cache
PIECE = 8 << 20  # bytes that are read at a time, which bounds memory
SUMS = {np.dtype(np.uint8): byte_sums, np.dtype(np.uint16): short_sums}


def moments(volume: Volume, *, replace: bool = False) -> tuple[Float64, Float64]:
    """Return mean and standard deviation of each channel, float64 (C,); errors as in `normalization.normalisation`.

    For uint8 and uint16 from exact sums, for others merged part by part (Chan et al. 1979), for floats over those that
    are finite in float32.
    """
    sums = SUMS.get(volume.dtype)
    tallies = [_Exact(sums) if sums else Tally() for _ in range(volume.channels)]
    odd = oddities(volume, prod(volume.extent))
    for lower, upper in pieces(volume):
        piece = volume.read(lower, upper, finite=False)
        for channel, (tally, values) in enumerate(zip(tallies, piece, strict=True)):
            tally.add(odd[channel].add(values, lower) if odd else values.reshape(-1))
    judge(volume, odd, replace=replace)
    deviations = [sqrt(tally.variance) for tally in tallies]
    return np.array([tally.mean for tally in tallies]), np.array(deviations)


@dataclass
class _Exact:
    """Number, sum and sum of squares of integers."""

    sums: Native
    count: int = 0
    total: int = 0
    squares: int = 0

    def add(self, values: Array) -> None:
        """Add some values."""
        given, found = np.ascontiguousarray(values), np.zeros(2, np.int64)
        self.sums(given.ctypes.data, given.size, found.ctypes.data)
        self.count += given.size
        self.total += int(found[0])
        self.squares += int(found[1])

    @property
    def mean(self) -> float:
        """Return the mean of all values."""
        return self.total / self.count

    @property
    def variance(self) -> float:
        """Return the variance of all values."""
        return (self.count * self.squares - self.total**2) / self.count**2


@dataclass
class Tally:
    """Number, mean and sum of squared deviations from it."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, values: Array) -> None:
        """Add some values, as many at a time as the cache holds in float64."""
        for first in range(0, values.size, CACHED):
            part = values[first : first + CACHED].astype(np.float64)
            here = float(part.mean())
            part -= here
            apart, both = here - self.mean, self.count + part.size
            self.squares += float(np.square(part, out=part).sum())
            self.squares += apart**2 * (self.count * part.size / both)
            self.mean += apart * (part.size / both)
            self.count = both

    @property
    def variance(self) -> float:
        """Return the variance of all values."""
        return self.squares / self.count


def pieces(volume: Volume) -> Iterator[tuple[Triple, Triple]]:
    """Yield the regions that statistics are taken from: the slabs, cut along y where they exceed PIECE bytes.

    In float64 a piece takes up to 8 times that.
    """
    for start, stop in statistics_slabs(volume):
        yield from pieces_of(volume, start, stop)


def pieces_of(volume: Volume, start: int, stop: int) -> Iterator[tuple[Triple, Triple]]:
    """Yield the regions of a range of z, cut along y where it exceeds PIECE bytes."""
    _, height, width = volume.extent
    row = (stop - start) * volume.nbytes // (volume.extent[0] * height)
    chunk = volume.chunk[1]
    step = max(1, PIECE // max(1, row * chunk)) * chunk
    for low in range(0, height, step):
        yield (start, low, 0), (stop, min(height, low + step), width)


def statistics_slabs(volume: Volume) -> list[tuple[int, int]]:
    """Return the ranges of z that statistics are taken from: all, or `SAMPLED` evenly spaced ones if large."""
    depth = volume.extent[0]
    step = max(1, SLAB * depth // volume.nbytes)
    starts = np.arange(0, depth, step)
    if len(starts) > SAMPLED:
        starts = starts[np.linspace(0, len(starts) - 1, SAMPLED).round().astype(int)]
    return [(int(start), min(depth, int(start) + step)) for start in starts]
