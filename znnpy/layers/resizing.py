"""The edge kind `resize`: feature maps of any other size, by nearest voxels or linear interpolation, in float64.

Along an axis of n voxels that becomes m, new voxel i lies at a place of the old ones that n and m alone give. Places
are fractions of whole numbers here, so that no rounding decides which voxel is nearest.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from znnpy.fields import Change3, Size3, Strict
from znnpy.layers.edge_kind import Applied, EdgeKind
from znnpy.layers.sizes import AllSizes, Voxel
from znnpy.layers.types import Array, Interpolation, Numbers, Triple

Places = NDArray[np.int64]


class ResizeLayer(Strict):
    """Feature maps get another size: divided, times a factor, and voxels more."""

    factor: Size3 = Field(
        default=(1, 1, 1),
        description="Factor by which feature maps grow, z y x; one number is for all.",
    )
    divisor: Size3 = Field(
        default=(1, 1, 1),
        description="By what they are divided, which leaves no voxel over: factor 3 and divisor 2 make 3 voxels of 2.",
    )
    more: Change3 = Field(
        default=(0, 0, 0),
        description="Voxels that they have more than that, z y x; fewer if negative. Values then depend on the size.",
    )
    mode: Interpolation = Field(
        default="nearest",
        description="nearest: the voxel at or before the place; nearest_exact: whose middle is nearest; linear between "
        "voxel centres; corners: linear, and the outermost voxels stay (align_corners).",
    )


def places(size: int, made: int, mode: Interpolation) -> tuple[Places, int]:
    """Return where the new voxels lie among the old ones, in steps, and how many steps a voxel has.

    `size`, `made`: voxels before and after. Places of nearest modes are rounded down to the voxel that is taken.
    """
    new = np.arange(made)
    if mode == "nearest":
        return new * size, made
    if mode == "nearest_exact":
        return (2 * new + 1) * size, 2 * made
    if mode == "linear":
        return np.clip((2 * new + 1) * size - made, 0, (size - 1) * 2 * made), 2 * made
    return new * (size - 1), max(made - 1, 1)


def taken(size: int, made: int, mode: Interpolation) -> tuple[Places, Places, Array]:
    """Return the first and the last voxel that each new one takes, and the share of the last; both may be one."""
    at, steps = places(size, made, mode)
    first, rest = np.divmod(at, steps)
    if mode.startswith("nearest"):
        rest = np.zeros_like(rest)
    return first, first + (rest > 0), rest / steps


def _weights(size: int, made: int, mode: Interpolation) -> Array:
    """Return how much each new voxel takes of each old one along an axis, a matrix (new, old)."""
    first, last, share = taken(size, made, mode)
    weights, new = np.zeros((made, size)), np.arange(made)
    weights[new, first] += 1.0 - share
    weights[new, last] += share
    return weights


def _matrices(values: Array, at: Applied) -> list[Array]:
    along = zip(_along(at.edge), values.shape[2:], strict=True)
    return [_weights(size, sizes.made(size), at.edge.mode) for sizes, size in along]


def resized(values: Array, at: Applied) -> Array:
    """Return values (batch, channel, z, y, x) at their new size."""
    z, y, x = _matrices(values, at)
    made: Array = np.einsum("nczyx,az,by,dx->ncabd", values, z, y, x, optimize=True)
    return made


def resized_gradient(values: Array, gradient: Array, at: Applied) -> Array:
    """Return the gradient by the input of `resized`, of which only the shape is used."""
    z, y, x = _matrices(values, at)
    data: Array = np.einsum("ncabd,az,by,dx->nczyx", gradient, z, y, x, optimize=True)
    return data


@dataclass(frozen=True)
class Resized:
    """Sizes of a resize along one axis: `shrinks` voxels become `grows`, and `more` are added to all.

    A new voxel sees the place that these two numbers alone give it, and all as far as `more`, or corners that stay,
    may move it from there.
    """

    grows: int
    shrinks: int
    more: int
    mode: Interpolation

    def made(self, size: int) -> int:
        return size // self.shrinks * self.grows + self.more

    def sources(self, size: int) -> range:
        count, left_over = divmod(size - self.more, self.grows)
        source = count * self.shrinks
        return range(source, source + 1) if source >= 1 and not left_over else range(0)

    def seen(self, low: Voxel, high: Voxel) -> tuple[Voxel, Voxel]:
        return self._seen(low, False), self._seen(high, True)

    def _seen(self, new: Voxel, last: bool) -> Voxel:
        steps, middle = 2 * self.grows, self.mode in ("nearest_exact", "linear")
        at = (2 * new + middle) * self.shrinks  # in steps of old voxels
        if self.mode == "linear":
            at = at - self.grows
        at = at + 2 * (max(self.moved, 0) if last else min(self.moved, 0))
        if last and not self.mode.startswith("nearest"):
            return -(-at // steps)  # the voxel behind a place has a share
        return at // steps

    @property
    def moved(self) -> int:
        """How far the end lies from where the two numbers alone put it, in parts of old voxels, `grows` each."""
        away = -self.shrinks * self.more
        return away + (self.shrinks - self.grows) * (self.mode == "corners")


def _along(edge: Numbers) -> list[Resized]:
    parts = (Fraction(a, b) for a, b in zip(edge.factor, edge.divisor, strict=True))
    return [
        Resized(part.numerator, part.denominator, more, edge.mode)
        for part, more in zip(parts, edge.more, strict=True)
    ]


def resized_sizes(edge: Numbers, dilation: Triple) -> AllSizes:
    """Return the sizes along z, y, x of a resize."""
    z, y, x = _along(edge)
    return z, y, x


def _of_patch(edge: Numbers) -> str:
    moved = any(along.moved for along in _along(edge))
    return "places between ends of the patch" if moved else ""


RESIZE = EdgeKind(
    name="resize",
    summary="Feature maps get any other size.",
    example="resize: {factor: [1, 4, 4], divisor: [1, 3, 3], mode: linear}  # 3 voxels become 4; also more: 0",
    keys=ResizeLayer,
    forward=resized,
    data_gradient=resized_gradient,
    sizes=resized_sizes,
    of_patch=_of_patch,
)
