"""Joins values of patches to those of a region: side by side, or overlapping windows by weighted means.

Weights of a window's voxels are made here, too: Gaussian, linear, constant or nnU-Net's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from znnpy.config.models import BlendName
from znnpy.data.volume import Array, Triple
from znnpy.infer.blocks import Region
from znnpy.infer.parallel import Parts

Floats = npt.NDArray[np.float32]
SIGMA = 1 / 8  # of a Gaussian, in windows, as nnU-Net and MONAI have it
TOP = 10.0  # of nnU-Net's map
REACH = 4.0  # standard deviations after which its Gaussian ends
LEAST = 1e-3  # weight of a Gaussian's far corners, as MONAI has it


class Joined(Protocol):
    """Collects values (channel, z, y, x) of one region by output node, from patches that are added in a fixed order."""

    def add(self, patch: Region, values: Mapping[str, Array]) -> None:
        """Add the values of a patch that meets the region; they start at the patch's first voxel."""

    def taken(self) -> dict[str, Array]:
        """Return the values of the region; 0 where no patch was added."""


class SideBySide:
    """Patches that do not overlap, in the dtype that is written."""

    def __init__(self, region: Region, channels: Mapping[str, int], dtype: np.dtype[Any]) -> None:
        self._region = region
        # Zeros stay where no patch is computed, behind a mask.
        self._whole = {name: np.zeros((n, *region.shape), dtype) for name, n in channels.items()}

    def add(self, patch: Region, values: Mapping[str, Array]) -> None:
        """Add a patch, as `Joined.add`."""
        part = patch.within(self._region)
        for name, found in values.items():
            target = self._whole[name][:, *part.slices(self._region.lower)]
            target[...] = found[:, *part.slices(patch.lower)]

    def taken(self) -> dict[str, Array]:
        """Return the region, as `Joined.taken`."""
        return dict(self._whole)


class Blended:
    """Weighted means of overlapping windows, in float32.

    A voxel's sum is over all windows that cover it, in the order in which they are added: the same for
    any region that holds the voxel. `weight` (z, y, x) of each voxel of a window; `parts` divides planes among threads.
    """

    def __init__(
        self, region: Region, channels: Mapping[str, int], weight: Floats, parts: Parts
    ) -> None:
        self._region, self._weight, self._parts = region, weight, parts
        self._sums = {n: np.zeros((k, *region.shape), np.float32) for n, k in channels.items()}
        self._total = np.zeros(region.shape, np.float32)

    def add(self, patch: Region, values: Mapping[str, Array]) -> None:
        """Add a window of float32 values, as `Joined.add`."""
        # A window may reach over the region: only what both have in common is added.
        part = patch.within(self._region)
        here, there = part.slices(self._region.lower), part.slices(patch.lower)
        weight, total = self._weight[there], self._total[here]
        sums = [(self._sums[name][:, *here], found[:, *there]) for name, found in values.items()]

        # Threads take planes, so each voxel's sum is still in the order of the windows.
        def planes(first: int, last: int) -> None:
            some = weight[first:last]
            total[first:last] += some
            for target, found in sums:
                target[:, first:last] += found[:, first:last] * some

        self._parts(planes, part.shape[0])

    def taken(self) -> dict[str, Array]:
        """Return the region, as `Joined.taken`."""
        # Voxels of no window stay 0 rather than 0 / 0.
        covered = self._total > 0

        def planes(first: int, last: int) -> None:
            some = np.s_[first:last]
            for sums in self._sums.values():
                np.divide(sums[:, some], self._total[some], out=sums[:, some], where=covered[some])

        self._parts(planes, self._region.shape[0])
        return dict(self._sums)


def window_weight(blend: BlendName, size: Triple, step: Triple) -> Floats:
    """Return the weight of each voxel of a window (z, y, x); `step`: voxels from one window to the next."""
    if blend == "nnunet":
        return _nnunet(size)
    lines = [_WEIGHTS[blend](*axis) for axis in zip(size, step, strict=True)]
    product = reduce(np.multiply.outer, lines).astype(np.float32)
    # The floor is of the product, as in MONAI: corners of a window keep some weight.
    return np.maximum(product, np.float32(LEAST)) if blend == "gaussian" else product


def _gaussian(size: int, step: int) -> npt.NDArray[np.float64]:
    places = np.arange(size) - (size - 1) / 2
    return np.exp(-((places / (SIGMA * size)) ** 2) / 2)


def _nnunet(size: Triple) -> Floats:
    """Return nnU-Net's map: of the values of a float16 that it adds up by, the least one where they would be 0."""
    z, y, x = map(_blurred, size)
    found = z[:, None, None] * y[:, None] * x
    rounded: npt.NDArray[np.float16] = (found * (TOP / found.max())).astype(np.float16)
    rounded[rounded == 0] = rounded[rounded > 0].min()
    return rounded.astype(np.float32)


def _blurred(size: int) -> npt.NDArray[np.float64]:
    """Return a line whose voxel n / 2 is 1, blurred; the bits of SciPy's `gaussian_filter`, without importing it."""
    sigma = SIGMA * size
    reach = int(REACH * sigma + 0.5)
    shares = np.exp(-0.5 / (sigma * sigma) * np.arange(-reach, reach + 1) ** 2)
    shares /= shares.sum()
    places = np.arange(size) - size // 2
    return np.where(abs(places) <= reach, shares[np.clip(places + reach, 0, 2 * reach)], 0.0)


def _linear(size: int, step: int) -> npt.NDArray[np.float64]:
    """Return weights with a ramp over the overlap at both ends, 1 between."""
    # Half a voxel in, so that no weight is 0: each voxel counts in every window that holds it.
    ends = np.minimum(np.arange(size), np.arange(size)[::-1]) + 0.5
    # 0.5: without overlap all weights are 1, and nothing is divided by 0.
    return np.minimum(ends / max(size - step, 0.5), 1.0)


def _constant(size: int, step: int) -> npt.NDArray[np.float64]:
    return np.ones(size)


_WEIGHTS: dict[str, Callable[[int, int], npt.NDArray[np.float64]]] = {
    "gaussian": _gaussian,
    "linear": _linear,
    "constant": _constant,
}
