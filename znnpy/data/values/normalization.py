"""Normalises raw images for networks, by their own values or by fixed numbers, each channel by itself; float32."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from znnpy.data.values.moments import moments
from znnpy.data.values.own_statistics import Own, own_normalisation
from znnpy.data.values.sampled_range import Glance, glance
from znnpy.data.values.scaling import Limits, Normalisation
from znnpy.data.volume import Volume
from znnpy.errors import VolumeError

Float64 = NDArray[np.float64]

FAR, FLAT = 100.0, 0.02
"""Normalised values beyond FAR, and spreads below FLAT, are probably a mistake: as of bytes by numbers for 0..1."""


@dataclass(frozen=True)
class Fixed:
    """Normalisation by given numbers, (value - mean) / deviation; one for each channel or one for all."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


@dataclass(frozen=True)
class Clip(Fixed):
    """The same after values are cut to a window, from `low` to `high`; one of each for a channel, or one for all."""

    low: tuple[float, ...]
    high: tuple[float, ...]


Mode = Literal["mean_std", "unit", "none"] | Fixed | Own


def normalisation(
    volume: Volume, mode: Mode = "mean_std", *, replace: bool = False
) -> Normalisation:
    """Return what normalises a volume: to mean 0, deviation 1 (`mean_std`), integers to [0, 1] (`unit`), or as said.

    Depends on the voxels alone, not on whether the volume is in memory. `unit` divides integers by the largest value
    of their type and leaves floats as they are; `none` only converts to float32. A constant channel becomes 0 under
    `mean_std`. Floats are looked through in any mode: VolumeError names the first value that float32 cannot hold,
    unless `replace` is given; absurd values cause a warning, as do numbers of other modes that hardly suit such
    values.
    """
    if mode == "mean_std":
        mean, deviation = moments(volume, replace=replace)
        return Normalisation(mean, 1.0 / np.where(deviation > 0, deviation, 1.0), replace)
    if isinstance(mode, Own):
        return own_normalisation(volume, mode, replace=replace)
    if volume.dtype.kind == "f":
        moments(volume, replace=replace)
    numbers = fixed_by(mode, volume.dtype)
    mean = _by_channel(numbers.mean, "mean", volume)
    deviation = _by_channel(numbers.deviation, "deviation", volume)
    if words := unlikely(glance(volume, finite=False), mode, volume.dtype):
        warnings.warn(f"{volume.name}: {words}", stacklevel=3)
    return Normalisation(mean, 1.0 / deviation, replace, _limits(mode, volume))


def _limits(mode: Mode, volume: Volume) -> Limits | None:
    if not isinstance(mode, Clip):
        return None
    return _by_channel(mode.low, "low", volume), _by_channel(mode.high, "high", volume)


def fixed_by(mode: Mode, dtype: np.dtype[Any]) -> Fixed:
    """Return the numbers of a mode that does not depend on values."""
    if isinstance(mode, Fixed):
        return mode
    largest = np.iinfo(dtype).max if mode == "unit" and dtype.kind in "ui" else 1
    return Fixed((0.0,), (float(largest),))


def unlikely(found: Glance, mode: Mode, dtype: np.dtype[Any]) -> str:
    """Return as text what is doubtful about a mode for values of such ranges; "" if nothing is."""
    if mode == "mean_std" or isinstance(mode, Own):
        return ""
    numbers = fixed_by(mode, dtype)
    mean, deviation = (_each(values, found) for values in (numbers.mean, numbers.deviation))
    for number, (ends, center, unit) in enumerate(zip(found.ranges, mean, deviation, strict=False)):
        if isinstance(mode, Clip):
            window = _each(mode.low, found)[number], _each(mode.high, found)[number]
            if ends[1] <= window[0] or ends[0] >= window[1]:
                return (
                    f"data.normalize cuts values from {ends[0]:g} to {ends[1]:g} to the window from {window[0]:g} to "
                    f"{window[1]:g}, which leaves one value: is the window that of other values?"
                )
            ends = (max(ends[0], window[0]), min(ends[1], window[1]))
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


def _each(numbers: tuple[float, ...], found: Glance) -> tuple[float, ...]:
    return numbers if len(numbers) > 1 else numbers * len(found.ranges)


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
