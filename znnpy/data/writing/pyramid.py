"""Coarser levels of an image: how large they are, and their values; means of images, single voxels of labels."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.data.volume import Array, Shape4, Triple, Triple64

ENOUGH = 256  # voxels along each axis of the coarsest level, at most


@dataclass(frozen=True)
class Level:
    """A level of an image: `shape` (c, z, y, x); `step` z, y, x: voxels of the level before that become one.

    `factors`: voxels of the image itself.
    """

    shape: Shape4
    step: Triple = (1, 1, 1)
    factors: Triple = (1, 1, 1)

    def resolution(self, finest: Triple64) -> Triple64:
        """Return its voxel size, of that of the image."""
        z, y, x = (size * factor for size, factor in zip(finest, self.factors, strict=True))
        return (z, y, x)


def levels_of(shape: Shape4, resolution: Sequence[float]) -> list[Level]:
    """Return the image itself and coarser levels, until `ENOUGH` voxels are left along each axis.

    Axes are halved whose voxels are less than twice as long as the shortest, so that voxels become cubes.
    """
    found = [Level(shape)]
    while max(found[-1].shape[1:]) > ENOUGH:
        last = found[-1]
        sizes = [r * f for r, f in zip(resolution, last.factors, strict=True)]
        many = last.shape[1:]
        least = min(size for size, n in zip(sizes, many, strict=True) if n > 1)
        z, y, x = (2 if n > 1 and a < 2 * least else 1 for a, n in zip(sizes, many, strict=True))
        step = (z, y, x)
        factors = [f * s for f, s in zip(last.factors, step, strict=True)]
        shrunk = [-(-n // s) for n, s in zip(many, step, strict=True)]
        found.append(
            Level(
                (shape[0], shrunk[0], shrunk[1], shrunk[2]),
                step,
                (factors[0], factors[1], factors[2]),
            )
        )
    return found


def coarser(values: Array, step: Triple, *, labels: bool) -> Array:
    """Return values (c, z, y, x) of one type, each of `step` voxels: their mean, or, of labels, the first of them.

    What is left over at the ends is one voxel more, the mean of what is there.
    """
    z, y, x = step
    if labels:
        return np.ascontiguousarray(values[:, ::z, ::y, ::x])
    room = [(0, 0), *((0, -n % s) for n, s in zip(values.shape[1:], step, strict=True))]
    # The last voxel again, which changes no mean of it alone.
    padded = np.pad(values, room, mode="edge") if any(after for _, after in room) else values
    single = values.dtype == np.float32
    shape = [n // s for n, s in zip(padded.shape, (1, *step), strict=True)]
    total: NDArray[Any] = np.zeros(shape, np.float32 if single else np.float64)
    for dz, dy, dx in itertools.product(range(z), range(y), range(x)):
        np.add(total, padded[:, dz::z, dy::y, dx::x], out=total)
    np.divide(total, z * y * x, out=total)
    return (np.rint(total) if values.dtype.kind in "iu" else total).astype(values.dtype)
