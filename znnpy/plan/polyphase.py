"""Splits strided filters into dense ones: each reads one phase of the feature map, with some of the taps.

Voxel o of the target meets tap k at voxel o * stride + k * dilation of the source. Taps j, j + step, j + 2 * step
... meet voxels of one phase alone: j * dilation, j * dilation + stride ... On that phase they are a filter without
stride, which gives as many voxels as the layer has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import gcd, prod

from znnpy.layers.types import ONCE
from znnpy.network.types import Triple


@dataclass(frozen=True)
class Phases:
    """The phases that strided filters meet, along z, y, x; a single one without strides.

    `counts`: their number. `apart`: voxels from the first one of a phase to that of the next. `stride`: voxels
    between neighbours within a phase. `step`: taps between those that meet the same phase. `size`: taps that meet
    the first phase, which are the most, `dilation` points of it apart.
    """

    counts: Triple
    apart: Triple
    stride: Triple
    step: Triple
    size: Triple
    dilation: Triple

    @property
    def count(self) -> int:
        """The number of phases along all axes together."""
        return prod(self.counts)

    @property
    def split(self) -> bool:
        """Whether there is more than one phase, or voxels that no tap meets."""
        return self.stride != ONCE

    def firsts(self) -> list[Triple]:
        """Return the first tap that meets each phase."""
        return [(z, y, x) for z, y, x in product(*map(range, self.counts))]

    def voxel(self, first: Triple) -> Triple:
        """Return the first voxel of the phase whose first tap is given."""
        z, y, x = (tap * apart for tap, apart in zip(first, self.apart, strict=True))
        return z, y, x


# Estimates ask for the same few layers again and again; as many entries as `plan.tiles` keeps.
@lru_cache(maxsize=1 << 14)
def phases_of(size: Triple, stride: Triple, dilation: Triple) -> Phases:
    """Return the phases of filters of a size, stride and dilation."""
    # Taps a whole stride / gcd(stride, dilation) apart move by whole strides, so they meet the same
    # phase.
    common = _each(gcd, stride, dilation)
    step = _each(int.__floordiv__, stride, common)
    return Phases(
        # A filter with fewer taps than phases leaves some phases without any.
        _each(min, step, size),
        dilation,
        stride,
        step,
        taps_from(size, step, (0, 0, 0)),
        _each(int.__floordiv__, dilation, common),
    )


def taps_from(size: Triple, step: Triple, first: Triple) -> Triple:
    """Return the number of taps that meet a phase: every `step`-th from the first on."""
    z, y, x = (-(-(k - j) // s) for k, s, j in zip(size, step, first, strict=True))
    return z, y, x


def _each(made: Callable[[int, int], int], one: Triple, other: Triple) -> Triple:
    z, y, x = map(made, one, other)
    return z, y, x
