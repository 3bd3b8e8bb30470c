"""Rotated, affine and elastic patches: where each voxel is read, and values and labels interpolated there.

A warp is a function of places in the scene, so that images and labels of any size move together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, cos, exp, hypot, log, prod, radians, sin

import numpy as np
from numpy.typing import NDArray
from znnpy_kernels.data.warping import places_room, warped_places

from znnpy.config.augment_section import AugmentSection
from znnpy.data.sampling.draws import Draws
from znnpy.data.sampling.scratch import at, scratch
from znnpy.data.volume import Triple, Triple64

Doubles = NDArray[np.float64]
Places = NDArray[np.float32]
Region = tuple[Triple, Triple]
VECTOR = 16  # float32, the most that a CPU has at once


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

    @cached_property
    def flat(self) -> bool:
        """Whether places of a section stay in it: z is read as it is."""
        kept = self.matrix[0].tolist() == [1, 0, 0]
        return kept and (self.control is None or not self.control[0].any())

    @cached_property
    def alike(self) -> bool:
        """Whether all sections are read alike, each where it lies."""
        return self.control is None and self.flat and self.matrix[1:, 0].tolist() == [0, 0]

    def places(
        self, begins: Doubles, rows: int, columns: int, base: Triple
    ) -> tuple[Places, Doubles, Doubles]:
        """Return where some sections are read, told from `base`, and the least and the largest by axis, of the scene.

        `begins`: float64 (sections, 3), the first place z, y, x of each. Places are float32 (3, section, row, column),
        without z where the warp is flat; rows are as long as vectors are, and what lies behind their columns means
        nothing.
        """
        axis, line = int(self.flat), columns + -columns % VECTOR
        shape = (3 - axis, len(begins), rows, line)
        # Vectors are read whole, beyond the last place.
        read = np.empty(prod(shape) + VECTOR, np.float32)[: prod(shape)].reshape(shape)
        numbers = np.concatenate(
            (self.matrix.ravel(), self.centre, np.array(base), self.origin, self.spacing)
        )
        counts, control = (1, 1, 1), 0
        if self.control is not None:
            # Held while the kernel runs, as it may be a copy.
            points = np.ascontiguousarray(self.control)
            counts, control = points.shape[1:], at(points)
        ends = np.zeros((2, 3), np.float32)
        warped_places(
            at(read), len(begins) * rows * line, line, at(begins), len(begins), rows, columns, at(numbers), control,
            *counts, axis, at(ends), scratch(places_room(counts, line, columns)),
        )  # fmt: skip
        least, most = ends + np.array(base, np.float64)
        return read, least, most


def draw_warp(
    settings: AugmentSection,
    draws: Draws,
    lower: Triple,
    extent: Triple,
    resolution: Triple64,
) -> Warp | None:
    """Draw the warp of a patch that begins at `lower`; None: it stays as it is. `resolution`: nanometres z, y, x."""
    rotate, affine, elastic = settings.rotate, settings.affine, settings.elastic
    matrix = None
    if rotate is not None and draws.share() < rotate.probability:
        axis = [1.0, 0.0, 0.0]
        if rotate.axis == "any":
            axis = draws.normal((3,)).tolist()
        matrix = _rotation(axis, radians(draws.between(rotate.angle)))
    if affine is not None and draws.share() < affine.probability:
        changed = _affine(draws, affine.scale, affine.shear, affine.axes)
        matrix = changed if matrix is None else changed @ matrix
    bent = elastic is not None and draws.share() < elastic.probability
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
        deviation = draws.between(elastic.deviation)
        control = draws.normal((3, *count))
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


def _affine(draws: Draws, scale: Sequence[float], shear: Sequence[float], axes: str) -> Doubles:
    """Return a matrix that scales each axis and shears each by each other one; of yx alone where `axes` says so."""
    low, high = map(log, scale)
    matrix = draws.each(shear, 9).reshape(3, 3)
    for i in range(3):
        matrix[i, i] = exp(draws.between((low, high)))
    if axes == "yx":
        matrix[0], matrix[:, 0] = 0, 0
        matrix[0, 0] = 1
    return matrix
