"""How the axes of a scan are turned for its network, and back: another order of axes, some of them reversed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from znnpy.config.prepare_section import PrepareSection
from znnpy.data.flat.geometry import UPRIGHT
from znnpy.data.volume import Array, Directions, Triple, Triple64, Volume

LETTERS = ("RL", "AP", "SI")
"""Directions to the right, to the front and up, each with its opposite."""


@dataclass(frozen=True)
class Turn:
    """`axes`: the scan's axis (z, y, x as 0, 1, 2) that each axis of the network is; `reversed_`: which run back.

    `oblique`: whether the scan's axes lie aslant in the room.
    """

    axes: Triple
    reversed_: tuple[bool, bool, bool] = (False, False, False)
    oblique: bool = False

    def applied(self, array: Array) -> Array:
        """Return an array (c, z, y, x) as the network sees it, a view."""
        turned = array.transpose(0, *(axis + 1 for axis in self.axes))
        return np.flip(turned, tuple(1 + axis for axis, back in enumerate(self.reversed_) if back))

    def undone(self, array: Array) -> Array:
        """Return an array (z, y, x) of the network's axes as it lies in the scan, contiguous."""
        found = np.flip(array, tuple(axis for axis, back in enumerate(self.reversed_) if back))
        return np.ascontiguousarray(found.transpose(np.argsort(self.axes)))

    def size(self, voxel: Triple64) -> Triple64:
        """Return a voxel size of the scan along the network's axes."""
        z, y, x = (voxel[axis] for axis in self.axes)
        return (z, y, x)


def turn_of(volume: Volume, section: PrepareSection) -> Turn:
    """Return how a scan is turned: as the section says, or so that its axes run where the section wants them."""
    directions = volume.directions or UPRIGHT
    oblique = any(sum(part != 0 for part in axis) > 1 for axis in directions)
    turn = (
        Turn(section.transpose) if section.orient is None else oriented(directions, section.orient)
    )
    return replace(turn, oblique=oblique)


def oriented(directions: Directions, letters: str) -> Turn:
    """Return the turn after which axes run as letters say, R or L, A or P, S or I; oblique ones nearly so."""
    nearest = _nearest(np.array(directions))
    axes, back = list[int](), list[bool]()
    for letter in letters:
        world = next(n for n, pair in enumerate(LETTERS) if letter in pair)
        axis = next(n for n, (found, _) in enumerate(nearest) if found == world)
        axes.append(axis)
        back.append((nearest[axis][1] > 0) != (letter == LETTERS[world][0]))
    return Turn((axes[0], axes[1], axes[2]), (back[0], back[1], back[2]))


def _nearest(directions: Array) -> Sequence[tuple[int, float]]:
    """Return the direction of the world that each axis is nearest to, each taken once, and its sign.

    As nibabel's `io_orientation`: of the nearest rotation, axes x, y, z one after the other.
    """
    left, _, right = np.linalg.svd(directions[::-1].T)
    rotation = left @ right
    found = [(0, 0.0)] * 3
    for number in range(3):
        world = int(np.argmax(np.abs(rotation[:, number])))
        found[2 - number] = world, float(rotation[world, number])
        rotation[world] = 0
    return found
