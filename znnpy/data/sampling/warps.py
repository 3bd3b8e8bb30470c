"""Rotated, affine and elastic patches: where each voxel is read, and values and labels interpolated there.

A warp is a function of places in the scene, so that images and labels of any size move together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, cos, exp, hypot, log, radians, sin
from typing import Any

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.data.warping import affine_places, bend_places

from znnpy.config.augment_section import AugmentSection
from znnpy.data.volume import Triple, Triple64

Doubles = NDArray[np.float64]
Region = tuple[Triple, Triple]


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

    @property
    def alike(self) -> bool:
        """Whether all sections are read alike, each where it lies."""
        still = self.control is None and self.flat
        return still and not bool(self.matrix[1:, 0].any())

    def over(self, z: Doubles, y: Doubles, x: Doubles) -> Doubles:
        """Return where the places of a lattice, given by axis, are read: float64 (3, z, y, x)."""
        read = np.empty((3, len(z), len(y), len(x)))
        self.write(read, z, y, x)
        return read

    def write(self, read: Doubles, z: Doubles, y: Doubles, x: Doubles) -> None:
        """Write where the places of a lattice are read; sections of an array may be given."""
        lattice = [np.ascontiguousarray(it, np.float64) for it in (z, y, x)]
        numbers = np.concatenate((self.matrix, [self.centre]))
        along = (it for line in lattice for it in (at(line), len(line)))
        affine_places(at(read), read.strides[0] // read.itemsize, at(numbers), *along)
        if self.control is not None:
            self._bend(read, lattice, self.control)

    def _bend(self, read: Doubles, lattice: list[Doubles], control: Doubles) -> None:
        places = [
            (it - first) / step
            for it, first, step in zip(lattice, self.origin, self.spacing, strict=True)
        ]
        counts = control.shape[1:]
        points, weights = _splines(np.concatenate(places), np.repeat(counts, read.shape[1:]))
        before = len(points) - read.shape[3]
        basis, spans = _columns(points[before:], weights[before:], counts[2])
        room = np.empty((counts[1] + 1, counts[2]))
        for found, displacements in zip(read, np.ascontiguousarray(control), strict=True):
            if displacements.any():
                bend_places(
                    at(found), *found.shape, at(displacements), *counts, at(points), at(weights), at(spans),
                    at(basis), at(room),
                )  # fmt: skip


def at(array: NDArray[Any]) -> int:
    """Return the address of an array's first element."""
    return int(array.ctypes.data)


def _splines(places: Doubles, counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], Doubles]:
    """Return four of `counts` points 0, 1, ... for each place, the last ones going on, and their weights.

    The weights are those of cubic B-splines.
    """
    first = np.floor(places)
    t = places - first
    rest, square = 1 - t, t * t
    cube = square * t
    weights = np.stack(
        (rest * rest * rest, 3 * cube - 6 * square + 4, 3 * (t + square - cube) + 1, cube), axis=1
    )
    beside = first.astype(np.int64)[:, None] + np.arange(-1, 3)
    return np.clip(beside, 0, counts[:, None] - 1), weights / 6


def _columns(
    points: NDArray[np.int64], weights: Doubles, count: int
) -> tuple[Doubles, NDArray[np.int64]]:
    """Return the weights of `count` points at each place, (count, places), and from where to where they are any."""
    basis = np.zeros((count, len(points)))
    places = np.arange(len(points))
    for point, weight in zip(points.T, weights.T, strict=True):
        basis[point, places] += weight
    # Places rise, and so do their points.
    every = np.arange(count)
    ends = points[:, 3].searchsorted(every, "left"), points[:, 0].searchsorted(every, "right")
    return basis, np.stack(ends, axis=1)


def draw_warp(
    settings: AugmentSection,
    random: np.random.Generator,
    lower: Triple,
    extent: Triple,
    resolution: Triple64,
) -> Warp | None:
    """Draw the warp of a patch that begins at `lower`; None: it stays as it is. `resolution`: nanometres z, y, x."""
    rotate, affine, elastic = settings.rotate, settings.affine, settings.elastic
    matrix = None
    if rotate is not None and random.random() < rotate.probability:
        axis = [1.0, 0.0, 0.0]
        if rotate.axis == "any":
            axis = random.standard_normal(3).tolist()
        matrix = _rotation(axis, radians(random.uniform(*rotate.angle)))
    if affine is not None and random.random() < affine.probability:
        changed = _affine(random, affine.scale, affine.shear, affine.axes)
        matrix = changed if matrix is None else changed @ matrix
    bent = elastic is not None and random.random() < elastic.probability
    if matrix is None and not bent:
        return None
    if matrix is None:
        matrix = np.eye(3)
    elif len(set(resolution)) > 1:
        # Angles are those of space, not of voxels.
        size = np.array(resolution, np.float64)
        matrix = matrix * size / size[:, None]
    centre = np.array([a + (n - 1) / 2 for a, n in zip(lower, extent, strict=True)])
    control, spacing = None, np.ones(3)
    if elastic is not None and bent:
        sides = [min(resolution) / it for it in resolution]
        spacing = np.array([max(1.0, elastic.spacing * it) for it in sides])
        count = [ceil(n / it) + 3 for n, it in zip(extent, spacing.tolist(), strict=True)]
        deviation = random.uniform(*elastic.deviation)
        control = random.standard_normal((3, *count))
        for displacements, side in zip(control, sides, strict=True):
            displacements *= deviation * side
        if elastic.axes == "yx":
            control[0] = 0
    # A point before the patch, as splines need.
    return Warp(matrix, centre, control, np.array(lower) - spacing, spacing)


def _rotation(axis: Sequence[float], angle: float) -> Doubles:
    """Return the rotation by an angle about an axis (z, y, x), by Rodrigues' formula."""
    length = hypot(*axis)
    a, b, c = (it / length for it in axis)
    s, d = sin(angle), 1 - cos(angle)
    rows = [
        [1 - d * (b * b + c * c), d * a * b - s * c, d * a * c + s * b],
        [d * a * b + s * c, 1 - d * (a * a + c * c), d * b * c - s * a],
        [d * a * c - s * b, d * b * c + s * a, 1 - d * (a * a + b * b)],
    ]
    return np.array(rows)


def _affine(
    random: np.random.Generator, scale: Sequence[float], shear: Sequence[float], axes: str
) -> Doubles:
    """Return a matrix that scales each axis and shears each by each other one; of yx alone where `axes` says so."""
    low, high = map(log, scale)
    matrix: Doubles = random.uniform(shear[0], shear[1], (3, 3))
    for i, size in enumerate(random.uniform(low, high, 3).tolist()):
        matrix[i, i] = exp(size)
    if axes == "yx":
        matrix[0], matrix[:, 0] = 0, 0
        matrix[0, 0] = 1
    return matrix
