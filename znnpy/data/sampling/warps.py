"""Rotated, affine and elastic patches: where each voxel is read, and values and labels interpolated there.

A warp is a function of places in the scene, so that images and labels of any size move together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.data.splines import spline_coefficients, spline_values
from znnpy_kernels.data.warping import affine_places, bend_places, nearest_voxels

from znnpy.config.augment_section import AugmentSection
from znnpy.data.volume import Array, Triple, Triple64

Doubles = NDArray[np.float64]
Region = tuple[Triple, Triple]

ROOM = 8  # voxels read beside: beyond, what a prefiltered spline has of the border is below 1e-4


@dataclass(frozen=True)
class Warp:
    """Reads place p at `matrix` (p - `centre`) + `centre`, and by the elastic displacement there beside it.

    Places are voxels z, y, x of the scene, `matrix` (3, 3). `control`: displacements (3, z, y, x) at points `spacing`
    voxels apart from `origin` on, between which cubic B-splines run; None: there are none.
    """

    matrix: Doubles
    centre: Doubles
    control: Doubles | None
    origin: Doubles
    spacing: Doubles

    @property
    def flat(self) -> bool:
        """Whether places of a section stay in it: z is read as it is."""
        kept = (self.matrix[0] == (1, 0, 0)).all()
        return bool(kept and (self.control is None or not self.control[0].any()))

    def over(self, z: Doubles, y: Doubles, x: Doubles) -> Doubles:
        """Return where the places of a lattice, given by axis, are read: float64 (3, z, y, x)."""
        lattice = [np.ascontiguousarray(it, np.float64) for it in (z, y, x)]
        sizes = [len(it) for it in lattice]
        numbers = np.concatenate((self.matrix, [self.centre]))
        read = np.empty((3, *sizes))
        along = (it for pair in zip(map(_at, lattice), sizes, strict=True) for it in pair)
        affine_places(_at(read), _at(numbers), *along)
        if self.control is not None:
            self._bend(read, lattice, self.control)
        return read

    def _bend(self, read: Doubles, lattice: list[Doubles], control: Doubles) -> None:
        layers, rows, columns = control.shape[1:]
        made = [
            _splines((it - first) / step, count)
            for it, first, step, count in zip(
                lattice, self.origin, self.spacing, control.shape[1:], strict=True
            )
        ]
        points, weights = (np.concatenate(it) for it in zip(*made, strict=True))
        room = np.empty((rows + 1, columns))
        for found, displacements in zip(read, np.ascontiguousarray(control), strict=True):
            if displacements.any():
                bend_places(
                    _at(found), *found.shape, _at(displacements), layers, rows, columns,
                    _at(points), _at(weights), _at(room),
                )  # fmt: skip


def _at(array: NDArray[Any]) -> int:
    """Return the address of an array's first element."""
    return int(array.ctypes.data)


def _splines(places: Doubles, count: int) -> tuple[NDArray[np.int64], Doubles]:
    """Return four points, 0, 1, ..., for each place, and their weights by cubic B-splines; the last ones go on."""
    first = np.floor(places)
    t = places - first
    parts = ((1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, 3 * (t + t**2 - t**3) + 1, t**3)
    beside = first.astype(np.int64)[:, None] + np.arange(-1, 3)
    return np.minimum(np.maximum(beside, 0), count - 1), np.stack(parts, axis=1) / 6


def draw_warp(
    settings: AugmentSection,
    random: np.random.Generator,
    lower: Triple,
    extent: Triple,
    resolution: Triple64,
) -> Warp | None:
    """Draw the warp of a patch that begins at `lower`; None: it stays as it is. `resolution`: nanometres z, y, x."""
    size = np.array(resolution, np.float64)
    matrix = np.eye(3)
    rotate, affine, elastic = settings.rotate, settings.affine, settings.elastic
    turned = rotate is not None and random.random() < rotate.probability
    if rotate is not None and turned:
        axis = np.array([1.0, 0.0, 0.0])
        if rotate.axis == "any":
            axis = random.standard_normal(3)
        matrix = _rotation(axis, np.deg2rad(random.uniform(*rotate.angle))) @ matrix
    changed = affine is not None and random.random() < affine.probability
    if affine is not None and changed:
        matrix = _affine(random, affine.scale, affine.shear, affine.axes) @ matrix
    centre = np.add(lower, (np.array(extent) - 1) / 2)
    # Angles are those of space, not of voxels.
    matrix = matrix * size / size[:, None]
    control, spacing = None, np.ones(3)
    bent = elastic is not None and random.random() < elastic.probability
    if elastic is not None and bent:
        sides = size.min() / size
        spacing = np.maximum(1.0, elastic.spacing * sides)
        count = np.ceil(np.array(extent) / spacing).astype(int) + 3
        deviation = random.uniform(*elastic.deviation)
        control = random.standard_normal((3, *count)) * (deviation * sides).reshape(3, 1, 1, 1)
        if elastic.axes == "yx":
            control[0] = 0
    if not (turned or changed or bent):
        return None
    # A point before the patch, as splines need.
    return Warp(matrix, centre, control, np.array(lower) - spacing, spacing)


def _rotation(axis: Doubles, angle: float) -> Doubles:
    """Return the rotation by an angle about an axis (z, y, x), by Rodrigues' formula."""
    a, b, c = axis / np.linalg.norm(axis)
    cross = np.array([[0, -c, b], [c, 0, -a], [-b, a, 0]])
    matrix: Doubles = np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * (cross @ cross)
    return matrix


def _affine(
    random: np.random.Generator, scale: Sequence[float], shear: Sequence[float], axes: str
) -> Doubles:
    """Return a matrix that scales each axis and shears each by each other one; of yx alone where `axes` says so."""
    low, high = np.log(scale)
    matrix: Doubles = random.uniform(shear[0], shear[1], (3, 3))
    np.fill_diagonal(matrix, np.exp(random.uniform(low, high, 3)))
    if axes == "yx":
        matrix[0], matrix[:, 0] = 0, 0
        matrix[0, 0] = 1
    return matrix


def region_of(low: Doubles, high: Doubles, room: Triple = (0, 0, 0)) -> Region:
    """Return the region lower <= (z, y, x) < upper that holds the voxels nearest to places, and `room` more.

    `low`, `high`: the least and the largest of the places along z, y and x.
    """
    z, y, x = (floor(n + 0.5) - more for n, more in zip(low, room, strict=True))
    bottom, height, width = (floor(n + 0.5) + 1 + more for n, more in zip(high, room, strict=True))
    return (z, y, x), (bottom, height, width)


def room_of(warp: Warp) -> Triple:
    """Return how many voxels z, y, x beside the nearest ones `interpolated` needs."""
    return (0 if warp.flat else ROOM, ROOM, ROOM)


def interpolated(values: NDArray[np.float32], lower: Triple, places: Doubles, flat: bool) -> Array:
    """Return values (C, z, y, x) at places (3, z, y, x), float32, by cubic splines; the first value is at `lower`.

    They are needed as far around the places as `room_of` says, and may be changed. `flat`: as the warp is.
    """
    _, depth, height, width = values.shape
    found = np.empty((len(values), *places.shape[1:]), np.float32)
    for channel, target in zip(np.require(values, requirements=["C", "W"]), found, strict=True):
        spline_coefficients(_at(channel), depth, height, width, flat)
        spline_values(
            _at(channel), height, width, *lower, _at(places), target.size, _at(target), flat
        )
    return found


def nearest(arrays: Sequence[Array], lower: Triple, places: Doubles) -> list[Array]:
    """Return arrays (..., z, y, x), the first voxels of which are `lower`, at the voxels nearest to places."""
    height, width = arrays[0].shape[-2:]
    voxels = np.empty(places.shape[1:], np.int64)
    nearest_voxels(_at(voxels), _at(places), voxels.size, *lower, height, width)
    return [it.reshape(*it.shape[:-3], -1).take(voxels, axis=-1) for it in arrays]
