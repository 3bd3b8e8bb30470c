"""Normalisation by an image's own values: deviation, range or percentiles, of a volume or slice by slice."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Literal

import numpy as np

from znnpy.data.values import moments
from znnpy.data.values.moments import Tally, pieces, pieces_of
from znnpy.data.values.outliers import usable
from znnpy.data.values.quantiles import Parts, quantiles
from znnpy.data.values.scaling import Normalisation
from znnpy.data.volume import Array, Volume, slabs

Numbers = tuple[float, float]
"""What is subtracted, and what is divided by."""


@dataclass(frozen=True)
class Own:
    """Normalisation by own values; `low` and `high` are the percentiles of `percentiles`, which `clip` cuts to.

    `by_slice`: of each slice, else of the volume. `nonzero`: of voxels that are not 0, which stay 0.
    """

    kind: Literal["mean_std", "range", "percentiles"]
    low: float = 0.0
    high: float = 100.0
    clip: bool = False
    by_slice: bool = False
    nonzero: bool = False


def own_normalisation(volume: Volume, mode: Own, *, replace: bool) -> Normalisation:
    """Return what normalises a volume by its own values; reads slab by slab, slices all of them.

    A channel or slice without values, or of one value alone, becomes 0.
    """
    if volume.dtype.kind == "f":
        moments.moments(volume, replace=replace)  # which refuses, or warns of, odd values
    if mode.by_slice:
        found = [_of(parts, volume, mode) for parts in _slices(volume, mode)]
        numbers = np.array(found).T  # number, channel, slice
    else:
        numbers = np.array(_of(_whole(volume, mode), volume, mode)).T
    shift, unit = numbers
    scale = 1.0 / np.where(unit > 0, unit, 1.0)
    limits = (shift, shift + unit) if mode.clip else None
    return Normalisation(shift, scale, replace, limits, mode.nonzero)


def _of(parts: Parts, volume: Volume, mode: Own) -> list[Numbers]:
    """Return the numbers of each channel."""
    if mode.kind == "mean_std":
        return _deviations(parts, volume.channels)
    shares = (mode.low / 100, mode.high / 100, 1.0)
    each = quantiles(parts, volume.channels, volume.dtype, shares)
    return [_between(values, volume, mode) for values in each]


def _between(values: Sequence[float], volume: Volume, mode: Own) -> Numbers:
    low, high, most = values or (0.0, 0.0, 0.0)
    if low == high < most:
        warnings.warn(
            f"{volume.name}: percentiles {mode.low:g} and {mode.high:g} are both {low:g}, with values up to {most:g} "
            "(data.normalize): they leave the scale of values as it is; if most voxels are background of 0, say "
            "nonzero: true",
            stacklevel=5,
        )
    return low, high - low


def _deviations(parts: Parts, channels: int) -> list[Numbers]:
    tallies = [Tally() for _ in range(channels)]
    for part in parts():
        for tally, values in zip(tallies, part, strict=True):
            tally.add(values)
    return [(it.mean, sqrt(it.variance) if it.count else 0.0) for it in tallies]


def _whole(volume: Volume, mode: Own) -> Parts:
    regions = list(pieces(volume))

    def parts() -> Iterator[list[Array]]:
        for lower, upper in regions:
            yield _counted(volume.read(lower, upper, finite=False), mode)

    return _kept(parts) if len(regions) == 1 else parts


def _slices(volume: Volume, mode: Own) -> Iterator[Parts]:
    """Yield the values of each slice; slices that are stored together are read together, if that is little."""
    plane = volume.nbytes // volume.extent[0]
    for start, stop in slabs(volume, moments.PIECE):
        if (stop - start) * plane <= moments.SLAB:
            array = volume.read((start, 0, 0), (stop, *volume.extent[1:]), finite=False)
            for z in range(stop - start):
                yield _kept(lambda here=array[:, z]: iter([_counted(here, mode)]))  # type: ignore[misc]
        else:
            for z in range(start, stop):
                yield _rows(volume, z, mode)


def _rows(volume: Volume, z: int, mode: Own) -> Parts:
    def parts() -> Iterator[list[Array]]:
        for lower, upper in pieces_of(volume, z, z + 1):
            yield _counted(volume.read(lower, upper, finite=False), mode)

    return parts


def _kept(parts: Parts) -> Parts:
    """Return the same values, read once."""
    values = list(parts())
    return lambda: values


def _counted(piece: Array, mode: Own) -> list[Array]:
    """Return the values that count of each channel, 1-D."""
    found = []
    for channel in piece:
        values = channel.reshape(-1)
        if values.dtype.kind == "f" and not (good := usable(values)).all():
            values = values[good]
        found.append(values[values != 0] if mode.nonzero else values)
    return found
