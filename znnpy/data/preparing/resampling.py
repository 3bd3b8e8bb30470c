"""Resampling to another voxel size by splines, one axis after the other: each a product with a matrix.

The matrices are SciPy's (`ndimage.zoom` of single voxels), so values are those of skimage's `resize` but for rounding.
Splines in several dimensions are products of those along each axis, so the order of axes does not matter; the one that
shrinks most comes first, as it leaves least to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from znnpy.config.prepare_section import GridName, ResampleSection
from znnpy.data.volume import Triple, Triple64

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Labels = NDArray[np.generic]
THIN = 3.0  # voxels that are so many times as long along one axis are resampled plane by plane
EQUAL = 1e-5  # by which shares differ that are equal but for rounding
MILLIMETRE = 1e6  # nanometres
CHUNK = 1 << 22  # float64 values that are multiplied at once, which bounds memory


def new_shape(
    shape: Triple, before: Triple64, after: Triple64, grid: GridName = "extent"
) -> Triple:
    """Return the voxels along each axis after resampling from one voxel size (nm) to another."""
    axes = zip(before, after, shape, strict=True)
    if grid == "centres":
        z, y, x = (round((n - 1) * a / b + 1) for a, b, n in axes)
        return (z, y, x)
    # In millimetres, as nnU-Net divides: half voxels are rounded as there.
    z, y, x = (round(a / MILLIMETRE / (b / MILLIMETRE) * n) for a, b, n in axes)
    return (z, y, x)


@dataclass(frozen=True)
class Resampling:
    """Resampling of a channel from `shape` to `wanted` voxels by splines of some order.

    `across`: the axis across which planes are resampled by themselves, by splines of order `between`; None: all alike.
    `steps`: voxels given between two that are wanted, from `starts` on; None: the edges of both coincide.
    """

    shape: Triple
    wanted: Triple
    order: int
    across: int | None = None
    between: int = 0
    steps: Triple64 | None = None
    starts: Triple64 = (0.0, 0.0, 0.0)

    @classmethod
    def of(
        cls,
        shape: Triple,
        wanted: Triple,
        before: Triple64,
        after: Triple64,
        section: ResampleSection,
        *,
        oblique: bool = False,
    ) -> Resampling:
        """Return the resampling that a section describes, between two voxel sizes.

        `oblique`: of a scan whose axes lie aslant, of which not the first centres but the middles coincide.
        """
        if section.grid == "centres":
            z, y, x = (b / a for a, b in zip(before, after, strict=True))
            made = cls(shape, wanted, section.order, steps=(z, y, x))
            return replace(made, starts=made.middled()) if oblique else made
        axis = _thin(before, after, section)
        return cls(shape, wanted, section.order, axis, section.across)

    def middled(self) -> Triple64:
        """Return where the first voxels lie in those given, if the middles of both coincide, as MONAI counts them."""
        along = zip(self.shape, self.wanted, self.steps or (1.0, 1.0, 1.0), strict=True)
        z, y, x = (n / 2 - m / 2 * step for n, m, step in along)
        return (z, y, x)

    @property
    def idle(self) -> bool:
        """Whether nothing changes."""
        return self.shape == self.wanted and self.steps in (None, (1.0, 1.0, 1.0))

    def matrix(self, axis: int) -> Float64:
        """Return the shares (wanted, given) of the voxels of an axis."""
        if self.steps is not None:
            start, step = self.starts[axis], self.steps[axis]
            return shares_between(self.shape[axis], self.wanted[axis], start, step)
        order = self.between if axis == self.across else self.order
        return weights(self.shape[axis], self.wanted[axis], order)

    def applied(self, channel: Float32) -> Float32:
        """Return a channel (z, y, x) resampled, float32; itself where nothing changes."""
        if self.idle:
            return channel
        least, most = self._range(channel)
        for axis in self._order():
            channel = along(channel, self.matrix(axis), axis)
        if self.order > 1:
            np.clip(channel, least, most, out=channel)
        if self.across is not None:
            channel = along(channel, self.matrix(self.across), self.across)
        return channel

    def _order(self) -> list[int]:
        """Return the axes that are resampled alike, the one that shrinks most first."""
        axes = [axis for axis in range(3) if axis != self.across]
        return sorted(axes, key=lambda axis: self.wanted[axis] / self.shape[axis])

    def _range(self, channel: Float32) -> tuple[Float32, Float32]:
        """Return the least and the largest value, of all voxels or of each plane: splines may not exceed them."""
        axes = tuple(axis for axis in range(3) if axis != self.across)
        return channel.min(axes, keepdims=True), channel.max(axes, keepdims=True)


def _thin(before: Triple64, after: Triple64, section: ResampleSection) -> int | None:
    """Return the axis across which planes are resampled by themselves."""
    if section.planes is True:
        return _longest(before)
    sizes = (before, after) if section.planes == "auto" else ()
    for voxel in sizes:
        if max(voxel) / min(voxel) > THIN:
            return _longest(voxel)
    return None


def _longest(voxel: Triple64) -> int | None:
    """Return the axis along which voxels are longest; None if that is so for several."""
    found = [axis for axis in range(3) if max(voxel) / voxel[axis] == 1]
    return found[0] if len(found) == 1 else None


@lru_cache(maxsize=16)
def weights(given: int, wanted: int, order: int) -> Float64:
    """Return the shares (wanted, given) of voxels along an axis in those of another number, by splines."""
    if given == wanted:
        return np.eye(given)
    from scipy.ndimage import zoom  # a third of a second to import

    columns = (
        zoom(one, wanted / given, order=order, mode="nearest", grid_mode=True)
        for one in np.eye(given)
    )
    return np.stack(list(columns), axis=1)


@lru_cache(maxsize=16)
def shares_between(given: int, wanted: int, start: float, step: float) -> Float64:
    """Return the shares (wanted, given) of voxels from a start on in steps, linear, cut at the ends."""
    places = np.clip(start + np.arange(wanted) * step, 0, given - 1)
    first = np.minimum(places.astype(np.int64), max(given - 2, 0))
    found, rows = np.zeros((wanted, given)), np.arange(wanted)
    found[rows, first] = 1 - (places - first)
    if given > 1:
        found[rows, first + 1] = places - first
    return found


def along(channel: Float32, shares: Float64, axis: int) -> Float32:
    """Return an array (z, y, x) whose voxels along an axis are shares of those given; float32, added in float64."""
    if len(shares) == channel.shape[axis] and np.array_equal(shares, np.eye(len(shares))):
        return channel
    shape = list(channel.shape)
    shape[axis] = len(shares)
    found = np.empty(shape, np.float32)
    if axis == 0:
        given, made = channel.reshape(len(channel), -1), found.reshape(len(found), -1)
        step = max(1, CHUNK // sum(shares.shape))
        for first in range(0, given.shape[1], step):
            some = np.s_[:, first : first + step]
            made[some] = shares @ given[some].astype(np.float64)
        return found
    for plane, made in zip(channel, found, strict=True):
        made[...] = shares @ plane if axis == 1 else plane @ shares.T
    return found


def labels_resampled(labels: Labels, how: Resampling) -> Labels:
    """Return labels (z, y, x) resampled: at each voxel the label with the largest share; of equal ones the nearest."""
    if how.idle:
        return labels
    nearest = labels[np.ix_(*(_nearest(how, axis) for axis in range(3)))]
    found, best, own = (np.zeros(how.wanted, kind) for kind in (labels.dtype, "f4", "f4"))
    for label in np.unique(labels):
        share = (labels == label).astype(np.float32)
        for axis in range(3):
            share = along(share, how.matrix(axis), axis)
        found[share > best] = label
        np.maximum(best, share, out=best)
        np.copyto(own, share, where=nearest == label)
    return np.where(own >= best - EQUAL, nearest, found)


def _nearest(how: Resampling, axis: int) -> NDArray[np.int64]:
    """Return the voxels of an axis that are nearest to those of another number of voxels."""
    shares = how.matrix(axis) if how.steps else weights(how.shape[axis], how.wanted[axis], 0)
    found: NDArray[np.int64] = shares.argmax(axis=1)
    return found


def used(shares: Float64, rows: slice) -> tuple[int, int]:
    """Return the first voxel that some rows of shares take, and the one after the last."""
    columns = np.flatnonzero(shares[rows].any(axis=0))
    return int(columns[0]), int(columns[-1]) + 1


def spacing_of(voxel: Sequence[float], wanted: Sequence[float | None]) -> Triple64:
    """Return a voxel size with those of a scan where none is wanted."""
    z, y, x = (a if b is None else b for a, b in zip(voxel, wanted, strict=True))
    return (z, y, x)
