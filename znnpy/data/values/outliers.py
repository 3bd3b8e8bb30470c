"""Finds values that no image should hold: NaN, infinity, and values absurdly far from all others."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from znnpy.data.volume import Array, Triple, Volume
from znnpy.errors import VolumeError

Found = tuple[float, Triple]
"""A value and its place (z, y, x)."""
LARGEST = np.finfo(np.float32).max  # float32, so that half precision is compared in float32
# Deviations of the others, from their mean. One such value among a million makes the deviation of all
# sqrt(2) times as large; what transforms spread of it (docs/design/spectral.md) is still rounding.
ABSURD = 1000
SAMPLE = 1 << 16  # values of a channel that tell what is usual
SHARE = 0.01  # of them that are left out at either end
WAY_OUT = (
    "Mend them, or take them as 0 after normalisation (the mean under mean_std): "
    "data.replace_nonfinite: true, or --replace-nonfinite"
)


def usable(array: Array) -> NDArray[np.bool_]:
    """Return where values are finite in float32."""
    return np.abs(array) <= LARGEST


@dataclass
class Oddities:
    """Odd values of one channel of floats, found piece by piece; places are (z, y, x)."""

    step: int
    """Every `step`-th value is kept as a sample."""
    unusable: int = 0
    first: Found | None = None
    least: Found | None = None
    most: Found | None = None
    sample: list[Array] = field(default_factory=list)

    def add(self, values: Array, lower: Triple) -> Array:
        """Add a piece (z, y, x) that begins at `lower`; return its usable values, 1-D."""
        flat, good = values.reshape(-1), usable(values).reshape(-1)
        if not good.all():
            self.unusable += int(good.size - good.sum())
            self.first = self.first or _at(values, lower, int(good.argmin()))
            flat = flat[good]
        if flat.size:
            self.sample.append(flat[:: self.step].astype(np.float64))
            low, high = flat.min(), flat.max()
            if self.least is None or low < self.least[0]:
                self.least = _at(values, lower, int((values == low).argmax()))
            if self.most is None or high > self.most[0]:
                self.most = _at(values, lower, int((values == high).argmax()))
        return flat

    def absurd(self) -> str:
        """Return as text the value farthest from the usual ones, if it is absurdly far; else ""."""
        sample = np.concatenate([*self.sample, np.zeros(0)])
        if not sample.size:
            return ""
        low, high = np.quantile(sample, [SHARE, 1 - SHARE])
        usual = sample[(sample >= low) & (sample <= high)]
        mean, deviation = float(usual.mean()), float(usual.std())
        value, place = max(
            (e for e in (self.least, self.most) if e), key=lambda e: abs(e[0] - mean)
        )
        if deviation == 0 or abs(value - mean) <= ABSURD * deviation:
            return ""
        return (
            f"{value:g} at (z, y, x) = {place} lies {abs(value - mean) / deviation:.2g} deviations from "
            f"the others (mean {mean:.4g}, deviation {deviation:.4g})"
        )


def judge(volume: Volume, channels: list[Oddities], *, replace: bool) -> None:
    """Raise VolumeError for values that float32 cannot hold, unless they are replaced; warn of absurd ones."""
    unusable = sum(channel.unusable for channel in channels)
    found = [(channel.first, c) for c, channel in enumerate(channels) if channel.first]
    for number, channel in enumerate(channels):
        if not channel.sample:
            raise VolumeError(f"{volume.name}: channel {number} holds no finite value")
    if found and not replace:
        (value, place), number = min(found, key=lambda one: (one[0][1], one[1]))
        raise VolumeError(
            f"{volume.name}: {unusable} values are NaN, infinite or too large for float32, the first "
            f"{value} at (z, y, x) = {place}, channel {number}. {WAY_OUT}"
        )
    for number, channel in enumerate(channels):
        if words := channel.absurd():
            warnings.warn(
                f"{volume.name}, channel {number}: {words}; it leaves the others little contrast under "
                "normalize: mean_std, and spreads over its surroundings by rounding where layers run "
                "by FFT or in tiles",
                stacklevel=4,
            )


def oddities(volume: Volume, read: int) -> list[Oddities]:
    """Return a collector for each channel of floats, of which `read` values will be looked at."""
    if volume.dtype.kind != "f":
        return []
    return [Oddities(max(1, read // SAMPLE)) for _ in range(volume.channels)]


def _at(values: Array, lower: Triple, index: int) -> Found:
    z, y, x = (
        int(n) + a for n, a in zip(np.unravel_index(index, values.shape), lower, strict=True)
    )
    return float(values.reshape(-1)[index]), (z, y, x)
