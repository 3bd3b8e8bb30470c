"""Normalises raw images for networks: mean and deviation, range, or fixed numbers; float32, per volume and channel."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.data.moments import byte_sums, short_sums
from znnpy_kernels.machine.native import Native

from znnpy.data.values.outliers import judge, oddities, usable
from znnpy.data.values.sampled_range import Glance, glance
from znnpy.data.volume import Array, Triple, Volume
from znnpy.errors import VolumeError

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

# Volumes above SAMPLED * SLAB bytes are judged by evenly spaced slabs instead of being read whole.
SLAB = 64 << 20
SAMPLED = 64
CACHED = 1 << 15  # values that are summed up at a time: in float64 they stay in the cache
PIECE = 8 << 20  # bytes that are read at a time, which bounds memory
SUMS = {np.dtype(np.uint8): byte_sums, np.dtype(np.uint16): short_sums}


FAR, FLAT = 100.0, 0.02
"""Normalised values beyond FAR, and spreads below FLAT, are probably a mistake: as of bytes by numbers for 0..1."""


@dataclass(frozen=True)
class Fixed:
    """Normalisation by given numbers, (value - mean) / deviation; one for each channel or one for all."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


Mode = Literal["mean_std", "unit", "none"] | Fixed


@dataclass(frozen=True)
class Normalisation:
    """`(value - shift) * scale` for each channel; shift and scale are float64 of shape (C,).

    With `replace`, what float32 cannot hold, such as NaN, becomes 0: the mean under `mean_std`.
    """

    shift: Float64
    scale: Float64
    replace: bool = False

    def apply(self, array: Array, out: Float32 | None = None) -> Float32:
        """Return the normalised values, float32 of the same shape, (C, z, y, x), in `out` or a new array."""
        if out is None:
            out = np.empty(array.shape, np.float32)
        # What float32 cannot hold exactly is taken in float64, as differences may be small beside the values.
        exact = np.float32 if np.can_cast(array.dtype, np.float32) else np.float64
        shift = self.shift.astype(exact)[:, None, None, None]
        with np.errstate(over="ignore", invalid="ignore"):
            np.subtract(array, shift, out=out, dtype=exact, casting="unsafe")
            out *= self.scale.astype(np.float32)[:, None, None, None]
        if self.replace and array.dtype.kind == "f":
            out[~usable(array)] = 0
        return out


def normalisation(
    volume: Volume, mode: Mode = "mean_std", *, replace: bool = False
) -> Normalisation:
    """Return what normalises a volume: to mean 0, deviation 1 (`mean_std`), integers to [0, 1] (`unit`), or `Fixed`.

    Depends on the voxels alone, not on whether the volume is in memory. `unit` divides integers by the largest value
    of their type and leaves floats as they are; `none` only converts to float32. A constant channel becomes 0 under
    `mean_std`. Floats are looked through in any mode: VolumeError names the first value that float32 cannot hold,
    unless `replace` is given; absurd values cause a warning, as do numbers of other modes that hardly suit such
    values.
    """
    if mode == "mean_std":
        mean, deviation = moments(volume, replace=replace)
        return Normalisation(mean, 1.0 / np.where(deviation > 0, deviation, 1.0), replace)
    if volume.dtype.kind == "f":
        moments(volume, replace=replace)
    numbers = fixed_by(mode, volume.dtype)
    mean = _by_channel(numbers.mean, "mean", volume)
    deviation = _by_channel(numbers.deviation, "deviation", volume)
    if words := unlikely(glance(volume, finite=False), mode, volume.dtype):
        warnings.warn(f"{volume.name}: {words}", stacklevel=3)
    return Normalisation(mean, 1.0 / deviation, replace)


def fixed_by(mode: Mode, dtype: np.dtype[Any]) -> Fixed:
    """Return the numbers of a mode that does not depend on values."""
    if isinstance(mode, Fixed):
        return mode
    largest = np.iinfo(dtype).max if mode == "unit" and dtype.kind in "ui" else 1
    return Fixed((0.0,), (float(largest),))


def unlikely(found: Glance, mode: Mode, dtype: np.dtype[Any]) -> str:
    """Return as text what is doubtful about a mode for values of such ranges; "" if nothing is."""
    if mode == "mean_std":
        return ""
    numbers = fixed_by(mode, dtype)
    mean, deviation = (
        values if len(values) > 1 else values * len(found.ranges)
        for values in (numbers.mean, numbers.deviation)
    )
    for number, (ends, center, unit) in enumerate(zip(found.ranges, mean, deviation, strict=False)):
        low, high = ((value - center) / unit for value in ends)
        if max(-low, high) > FAR or 0 < high - low < FLAT:
            channel = f" of channel {number}" if len(found.ranges) > 1 else ""
            other = "are its mean and deviation those of other values?"
            return (
                f"data.normalize takes values{channel} from {ends[0]:g} to {ends[1]:g} to {low:.4g} to {high:.4g}, "
                "where networks want a few units around 0: "
                f"{other if isinstance(mode, Fixed) else f'{mode} leaves them there, mean_std does not'}"
            )
    return ""


def _by_channel(numbers: tuple[float, ...], key: str, volume: Volume) -> Float64:
    if len(numbers) not in (1, volume.channels):
        raise VolumeError(
            f"data.normalize.{key} has {len(numbers)} numbers, but {volume.name} has {volume.channels} "
            "channel(s)"
        )
    return np.broadcast_to(np.array(numbers, np.float64), volume.channels)


def unexamined(volume: Volume, *, replace: bool = False) -> Normalisation:
    """Return the normalisation that only converts to float32, for a volume that was not looked through."""
    return Normalisation(np.zeros(volume.channels), np.ones(volume.channels), replace)


def moments(volume: Volume, *, replace: bool = False) -> tuple[Float64, Float64]:
    """Return mean and standard deviation of each channel, float64 (C,); errors as in `normalisation`.

    For uint8 and uint16 from exact sums, for others merged part by part (Chan et al. 1979), for floats over those that
    are finite in float32.
    """
    sums = SUMS.get(volume.dtype)
    tallies = [_Exact(sums) if sums else _Tally() for _ in range(volume.channels)]
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
class _Tally:
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
    _, height, width = volume.extent
    for start, stop in statistics_slabs(volume):
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
