"""Sliding windows that overlap over a whole volume, for networks whose values depend on the patch: where they lie.

Windows have one size and lie where the volume's size alone says, so that a voxel is seen by the same windows,
with the same weights (`blending.window_weight`), whatever part of the volume is asked for, and in whatever pieces.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from znnpy.config.models import BlendName, SpreadName
from znnpy.data.volume import Triple
from znnpy.infer.blending import Blended, Floats, window_weight
from znnpy.infer.blocks import Region, add, cuts, triple
from znnpy.infer.parallel import Parts

Shares = tuple[float, float, float]


@dataclass(frozen=True)
class Windows:
    """Windows of `size` voxels over `extent` voxels, the first of which is `origin`.

    Each overlaps the one before it by the fraction `overlap`, or, where they are `spread` evenly, by as much or more,
    and the last one ends with the volume. A volume that is smaller than a window lies in its middle, the odd voxel
    behind. All triples are z, y, x.
    """

    size: Triple
    overlap: Shares
    blend: BlendName
    extent: Triple
    origin: Triple = (0, 0, 0)
    spread: SpreadName = "steps"

    @property
    def blends(self) -> bool:
        """True: windows overlap, and values are finished once they are joined."""
        return True

    @cached_property
    def unit(self) -> Triple:
        """The step in voxels from one window to the next."""
        # MONAI's rule, `int` included: windows must lie where its do
        # (tests/peers/test_windows_beside_monai.py).
        return triple(
            max(1, int(n * (1 - o))) for n, o in zip(self.size, self.overlap, strict=True)
        )

    @cached_property
    def starts(self) -> tuple[tuple[int, ...], ...]:
        """The first voxels of windows along z, y, x."""
        if self.spread == "even":
            spread = zip(self.extent, self.size, self.overlap, strict=True)
            found = [_evenly(n, size, size * (1 - share)) for n, size, share in spread]
        else:
            found = [_starts(*axis) for axis in zip(self.extent, self.size, self.unit, strict=True)]
        pairs = zip(found, self.origin, strict=True)
        return tuple(tuple(origin + start for start in starts) for starts, origin in pairs)

    def meeting(self, region: Region) -> list[Region]:
        """Return the windows that meet a region, z slowest: in the order of their numbers."""
        places = map(triple, itertools.product(*self._axes(region)))
        return [Region(place, add(place, self.size)) for place in places]

    def span(self, region: Region) -> Region:
        """Return all voxels of the windows that meet a region."""
        axes = self._axes(region)
        last = triple(starts[-1] for starts in axes)
        return Region(triple(starts[0] for starts in axes), add(last, self.size))

    def count(self, region: Region) -> int:
        """Return how many windows meet a region."""
        return math.prod(len(starts) for starts in self._axes(region))

    def widest(self, block: Triple) -> Triple:
        """Return the most voxels along z, y, x of all windows that meet a block of this shape, wherever it lies."""
        axes = zip(block, self.size, self.extent, strict=True)
        # A window that meets a block reaches at most size - 1 beyond it on each side, and no
        # further than the volume.
        return triple(min(n + 2 * (size - 1), max(size, whole)) for n, size, whole in axes)

    @cached_property
    def weight(self) -> Floats:
        """The weight of each voxel of a window, (z, y, x)."""
        return window_weight(self.blend, self.size, self.unit)

    def order(self, blocks: list[Region]) -> list[Region]:
        """Return the blocks sorted z slowest, as windows are numbered."""
        return sorted(blocks, key=lambda block: block.lower)

    def pieces(self, region: Region) -> list[Region]:
        """Return the regions to compute at once for a region's values in memory: slabs, which read least twice."""
        (low, *rest), (high, *ends) = region.lower, region.upper
        places = range(low, high, self.unit[0])
        return [Region(triple([a, *rest]), triple([a + self.unit[0], *ends])) for a in places]

    def shared(self, region: Region, block: Triple, phase: Triple) -> int:
        """Return how many windows to remember while a region is computed in blocks, so that each is computed once.

        Blocks come z slowest, on a grid that begins `phase` voxels before the region.
        """
        return self._needed(self._shares(region, block, phase))[0]

    def runs(self, region: Region, block: Triple, phase: Triple, kept: int) -> int:
        """Return about how many windows are computed for a region in blocks if so many are remembered."""
        shares, runs = self._shares(region, block, phase), 1.0
        needed = [*self._needed(shares), 0]
        for axis, (more, less) in zip(shares, itertools.pairwise(needed), strict=True):
            again = 1.0 if kept < more else 0.0
            # Some of the windows are found again: between both ends in proportion.
            if less < kept < more:
                again = (more - kept) / (more - less)
            runs *= axis.all + again * (axis.apart - axis.all)
        return round(runs)

    def _shares(self, region: Region, block: Triple, phase: Triple) -> list[_Share]:
        return [
            _Share.of(self.starts[axis], self.size[axis], cuts(region, block, phase, axis))
            for axis in range(3)
        ]

    def _needed(self, shares: list[_Share]) -> list[int]:
        """Return how many are remembered until the next plane of blocks, the next row, the next block."""
        z, y, x = shares
        block = z.most * y.most * x.across
        row = block + z.most * y.across * x.all
        return [row + z.across * y.all * x.all, row, block]

    def joined(
        self, region: Region, channels: Mapping[str, int], dtype: np.dtype[Any], parts: Parts
    ) -> Blended:
        """Return the collector of the values of a region's windows."""
        return Blended(region, channels, self.weight, parts)

    def _axes(self, region: Region) -> list[list[int]]:
        axes = zip(self.starts, self.size, region.lower, region.upper, strict=True)
        return [[a for a in starts if a < high and a + n > low] for starts, n, low, high in axes]


@dataclass(frozen=True)
class _Share:
    """Numbers of windows along one axis of blocks: `all`, `most` that meet one block, `across` a border between two.

    `apart`: how many all blocks meet, each counted by itself.
    """

    all: int
    most: int
    across: int
    apart: int

    @classmethod
    def of(cls, starts: tuple[int, ...], size: int, blocks: list[tuple[int, int]]) -> _Share:
        met = [{a for a in starts if a < high and a + size > low} for low, high in blocks]
        across = [len(one & other) for one, other in itertools.pairwise(met)]
        counts = list(map(len, met))
        return cls(len(set.union(*met)), max(counts), max(across, default=0), sum(counts))


def _starts(extent: int, size: int, step: int) -> list[int]:
    # In its middle, with the odd voxel behind.
    if extent <= size:
        return [-((size - extent) // 2)]
    count = 1 - (size - extent) // step
    # The last one is moved back to end with the volume.
    return [min(number * step, extent - size) for number in range(count)]


def _evenly(extent: int, size: int, step: float) -> list[int]:
    """Return starts at most a step apart; those of single voxels are all voxels."""
    if extent <= size:
        return [-((size - extent) // 2)]
    if size == 1:
        return [*range(extent)]
    # nnU-Net's, round half to even included (tests/peers/test_nnunet_inference.py).
    last = math.ceil((extent - size) / step)
    return [round((extent - size) / last * number) for number in range(last + 1)]
