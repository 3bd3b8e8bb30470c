"""The share of a group's tiles that one task transforms, for any layout of spectra."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from znnpy_kernels.machine.abi import Kernel

from znnpy.engine.convolution.tiles import Stretch, TileSpectra, Window, planes_of
from znnpy.engine.memory.regions import Region
from znnpy.engine.memory.tensors import Tensor


@dataclass(frozen=True)
class TransformTask:
    """A kernel, its own words and its cost; the tensor, tiles and blocks of it that it touches, wholly or in part.

    `strand`: a number of its own among the tasks that write the same tensor; `phase`: which of the views it is;
    `planes`: those of each tile's points, where a task takes some.
    """

    kernel: Kernel
    words: Mapping[str, float]
    cost: float
    tensor: Tensor
    stretches: list[Stretch]
    blocks: range
    strand: int = -1
    phase: int = 0
    planes: tuple[int, int] | None = None

    def touched(self, spectra: TileSpectra, window: Window) -> list[tuple[Stretch, Region]]:
        """Return the regions of the tensor under a `window` of the tiles, each with its tiles."""
        tensor = self.tensor
        if self.planes:
            (z, y, x), (_, *count), (low, high) = window.origin, window.count, self.planes
            window = Window((z + low, y, x), (high - low, count[0], count[1]))
        return [
            (stretch, tensor.region(stretch.grid.batch, block, *planes))
            for stretch in self.stretches
            if (planes := planes_of(tensor, spectra.tiling, stretch, window))
            for block in self.blocks
        ]
