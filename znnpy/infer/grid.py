"""A grid of patches side by side over a whole volume, for networks whose values do not depend on the patch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from znnpy.data.volume import Triple
from znnpy.errors import ShapeError
from znnpy.geometry.shape_inference import Geometry
from znnpy.infer.blending import SideBySide
from znnpy.infer.blocks import Region, add, lattice_unit, made, triple
from znnpy.infer.parallel import Parts


@dataclass(frozen=True)
class Grid:
    """Patches of one shape side by side, one of them with its first voxel at `origin`.

    The network only ever computes whole patches, so that every voxel is computed in the same patch
    whatever part of the volume is asked for, and in whatever pieces.
    """

    patch: Triple
    origin: Triple = (0, 0, 0)

    @classmethod
    def of(cls, geometry: Geometry) -> Grid:
        """Return the grid of runs of a network: patches of the most voxels that keep all on the lattice of its pooling.

        Raises ShapeError when a run has too few voxels for that.
        """
        found, unit = made(geometry), lattice_unit(geometry)
        if any(n < step for n, step in zip(found, unit, strict=True)):
            raise ShapeError(
                f"patches of {found} voxels (z, y, x) are smaller than what pooling joins, {unit}"
            )
        # What a run has beyond its last whole period is left out: the next patch begins there and
        # must see pooling alike.
        return cls(triple(n // step * step for n, step in zip(found, unit, strict=True)))

    def span(self, region: Region) -> Region:
        """Return all voxels of the patches that meet a region."""
        steps = list(zip(region.lower, region.upper, self.origin, self.patch, strict=True))
        return Region(
            # Down to the patch that holds the first voxel, up to the end of the one that holds the
            # last.
            triple(o + (a - o) // step * step for a, _, o, step in steps),
            triple(o - (o - b) // step * step for _, b, o, step in steps),
        )

    def meeting(self, region: Region) -> list[Region]:
        """Return the patches that meet a region, z slowest."""
        span = self.span(region)
        axes = [
            range(a, b, step) for a, b, step in zip(span.lower, span.upper, self.patch, strict=True)
        ]
        places = map(triple, itertools.product(*axes))
        return [Region(place, add(place, self.patch)) for place in places]

    def count(self, region: Region) -> int:
        """Return how many patches meet a region."""
        return self.span(region).voxels // math.prod(self.patch)

    @property
    def blends(self) -> bool:
        """False: patches do not overlap."""
        return False

    @property
    def size(self) -> Triple:
        """The voxels of a patch."""
        return self.patch

    @property
    def unit(self) -> Triple:
        """The step from one patch to the next: blocks of whole ones meet the fewest."""
        return self.patch

    def widest(self, block: Triple) -> Triple:
        """Return the most voxels along z, y, x of all patches that meet a block of this shape, wherever it lies."""
        aligned = all(n % step == 0 for n, step in zip(block, self.patch, strict=True))
        if aligned:
            return block
        steps = zip(block, self.patch, strict=True)
        return triple(-(-(n - 1) // step) * step + step for n, step in steps)

    def order(self, blocks: list[Region]) -> list[Region]:
        """Return the blocks sorted so that those of one patch follow each other."""
        # By the first patch: a patch that several blocks need is computed once and remembered for a
        # short time.
        return sorted(blocks, key=lambda block: (self.span(block).lower, block.lower))

    def pieces(self, region: Region) -> list[Region]:
        """Return the regions to compute at once for a region's values in memory; they may leave it."""
        return self.meeting(region)

    def shared(self, region: Region, block: Triple, phase: Triple) -> int:
        """Return how many patches to remember while a region is computed in blocks: those that two blocks meet.

        Blocks lie on a grid that begins `phase` voxels before the region.
        """
        steps = list(zip(block, self.patch, region.lower, phase, strict=True))
        if all(n % step == 0 and (low - before) % step == 0 for n, step, low, before in steps):
            return 0
        # Twice the patches that meet a block: those of the block before and of this one.
        return 2 * math.prod(-(-n // step) + 1 for n, step, _, _ in steps)

    def runs(self, region: Region, block: Triple, phase: Triple, kept: int) -> int:
        """Return how many patches are computed for a region in blocks if so many are remembered."""
        return self.count(region)

    def joined(
        self, region: Region, channels: Mapping[str, int], dtype: np.dtype[Any], parts: Parts
    ) -> SideBySide:
        """Return the collector of the values of a region's patches."""
        return SideBySide(region, channels, dtype)
