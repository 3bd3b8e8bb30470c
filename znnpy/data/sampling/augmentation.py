"""Data augmentation: random flips and axis swaps of patches; targets are made after labels were turned."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from znnpy.config.augment_section import AugmentSection
from znnpy.data.volume import Array, Triple, Triple64
from znnpy.errors import ShapeError, VolumeError

AXES = "zyx"
Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Turn:
    """A flip and a swap: axes z, y, x marked in `flips` are flipped, then axis i is `order[i]`."""

    flips: tuple[bool, bool, bool] = (False, False, False)
    order: Triple = (0, 1, 2)

    def apply(self, array: Array) -> Array:
        """Return the turned array, a view; its last three axes are z, y, x."""
        lead = array.ndim - 3
        axes = tuple(lead + axis for axis in range(3) if self.flips[axis])
        flipped = np.flip(array, axes) if axes else array
        return flipped.transpose(*range(lead), *(lead + axis for axis in self.order))


@dataclass(frozen=True)
class Augmentation:
    """The flips and swaps that are drawn: `flips` by axis letters, `swaps` "none", "auto" or axis letters.

    "auto" swaps axes of equal voxel size and equal patch extent; named axes must have both. `distortions`: how patches
    are distorted too (`Drawn`); None: they are not.
    """

    flips: str = AXES
    swaps: str = "auto"
    distortions: AugmentSection | None = None

    @property
    def all_flips(self) -> list[tuple[bool, bool, bool]]:
        """Return all flips that `draw_flips` may draw."""
        z, y, x = ((False, True) if axis in self.flips else (False,) for axis in AXES)
        return list(itertools.product(z, y, x))

    def draw_flips(self, random: np.random.Generator) -> tuple[bool, bool, bool]:
        """Flip each axis of `flips` with probability one half; always takes three random numbers."""
        z, y, x = (
            bool(bit) and axis in self.flips
            for bit, axis in zip(random.integers(0, 2, 3), AXES, strict=True)
        )
        return (z, y, x)

    def groups(
        self, resolution: Triple64, extents: Sequence[Iterable[object]], name: str
    ) -> Groups:
        """Return the axes that may be swapped, as groups of two or three.

        `extents`: for each node, values (z, y, x) that must be equal along swapped axes, such as sizes or offsets.
        Raises VolumeError or ShapeError if named axes differ in voxel size or extent.
        """
        if self.swaps == "none":
            return ()
        keys = [(resolution[axis], *(tuple(e)[axis] for e in extents)) for axis in range(3)]
        if self.swaps != "auto":
            wanted = tuple(AXES.index(letter) for letter in sorted(self.swaps, reverse=True))
            _refuse_unequal(wanted, resolution, keys, name)
            return (wanted,)
        alike = {key: tuple(a for a in range(3) if keys[a] == key) for key in keys}
        return tuple(group for group in alike.values() if len(group) > 1)


def draw_order(groups: Groups, random: np.random.Generator) -> Triple:
    """Draw a permutation of axes within the groups, all equally likely."""
    order = [0, 1, 2]
    for group in groups:
        for axis, source in zip(group, random.permutation(group), strict=True):
            order[axis] = int(source)
    return (order[0], order[1], order[2])


def _refuse_unequal(
    axes: Sequence[int], resolution: Triple64, keys: Sequence[tuple[object, ...]], name: str
) -> None:
    letters = " and ".join(AXES[axis] for axis in axes)
    if len({resolution[axis] for axis in axes}) > 1:
        raise VolumeError(
            f"{name}: axes {letters} cannot be exchanged, the voxels measure {resolution} nm "
            "(z, y, x); set swaps to auto or none"
        )
    if len({keys[axis] for axis in axes}) > 1:
        raise ShapeError(
            f"axes {letters} cannot be exchanged, the patches differ along them; use patches of "
            "equal sides, or set swaps to auto or none"
        )
