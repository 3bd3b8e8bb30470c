"""Rotated, affine and elastic patches: where each voxel is read, and values and labels interpolated there.

A warp is a function of places in the scene, so that images and labels of any size move together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import map_coordinates, spline_filter

from znnpy.config.augment_section import AugmentSection
from znnpy.data.volume import Array, Triple, Triple64

Doubles = NDArray[np.float64]
Region = tuple[Triple, Triple]

ORDER = 3  # of the splines that values are interpolated by
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

    def over(self, z: Doubles, y: Doubles, x: Doubles) -> Doubles:
        """Return where the places of a lattice, given by axis, are read: float64 (3, z, y, x)."""
        axes = [it - middle for it, middle in zip((z, y, x), self.centre, strict=True)]
        along = np.meshgrid(*axes, indexing="ij", sparse=True)
        read = np.empty((3, len(z), len(y), len(x)))
        for row, middle, target in zip(self.matrix, self.centre, read, strict=True):
            target[...] = row[0] * along[0] + row[1] * along[1] + (row[2] * along[2] + middle)
        if self.control is not None:
            counts = self.control.shape[1:]
            of_z, of_y, of_x = (
                _splines((it - first) / step, count)
                for it, first, step, count in zip(
                    (z, y, x), self.origin, self.spacing, counts, strict=True
                )
            )
            # Axis by axis: a lattice needs few numbers of each.
            bent = np.tensordot(self.control, of_x, (3, 1))
            bent = np.tensordot(bent, of_y, (2, 1)).swapaxes(2, 3)
            read += np.tensordot(bent, of_z, (1, 1)).transpose(0, 3, 1, 2)
        return read


def _splines(places: Doubles, count: int) -> Doubles:
    """Return the weights (place, point) of points 0, 1, ... at places by cubic B-splines; the last ones go on."""
    first = np.floor(places)
    t = places - first
    parts = ((1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, 3 * (t + t**2 - t**3) + 1, t**3)
    found = np.zeros((len(places), count))
    for beside, weight in enumerate(parts, -1):
        points = np.clip(first + beside, 0, count - 1).astype(np.int64)
        np.add.at(found, (np.arange(len(places)), points), weight / 6)
    return found


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


def region_of(places: Doubles, room: int = 0) -> Region:
    """Return the region lower <= (z, y, x) < upper that holds the voxels nearest to places, and `room` more."""
    nearest = np.floor(places.reshape(3, -1) + 0.5)
    z, y, x = (int(n) - room for n in nearest.min(axis=1))
    bottom, height, width = (int(n) + 1 + room for n in nearest.max(axis=1))
    return (z, y, x), (bottom, height, width)


def interpolated(values: NDArray[np.float32], lower: Triple, places: Doubles) -> Array:
    """Return values (C, z, y, x) at places (3, z, y, x), float32, by cubic splines; the first value is at `lower`."""
    inside = places - np.array(lower, np.float64).reshape(3, 1, 1, 1)
    found = np.empty((len(values), *places.shape[1:]), np.float32)
    for channel, target in zip(values, found, strict=True):
        coefficients = spline_filter(channel, order=ORDER, output=np.float32, mode="mirror")
        map_coordinates(
            coefficients, inside, output=target, order=ORDER, mode="mirror", prefilter=False
        )
    return found


def nearest(values: Array, lower: Triple, places: Doubles) -> Array:
    """Return arrays (..., z, y, x), the first voxel of which is `lower`, at the voxels nearest to places."""
    z, y, x = (
        np.floor(at + 0.5).astype(np.int64) - first for at, first in zip(places, lower, strict=True)
    )
    return values[..., z, y, x]
