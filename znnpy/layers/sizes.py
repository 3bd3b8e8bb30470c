"""Sizes of an operation along one axis: voxels that it takes and makes, and which input voxels an output voxel sees."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from znnpy.layers.types import Numbers, Triple
from znnpy.layers.windows import sides

Voxel = TypeVar("Voxel", int, NDArray[np.int64])


class Sizes(Protocol):
    """How the size of an edge's source relates to that of its target, along one axis; in voxels."""

    @property
    def shrinks(self) -> int:
        """Voxels of the source from one voxel of the target to the next (the stride); 1 for upsampling."""

    @property
    def grows(self) -> int:
        """Voxels of the target for one voxel of the source (the factor of upsampling); 1 otherwise."""

    def made(self, size: int) -> int:
        """Return the size of the target for one of the source; below 1 if that is too small."""

    def sources(self, size: int) -> range:
        """Return all sizes of the source that are accepted and make this size of the target."""

    def seen(self, low: Voxel, high: Voxel) -> tuple[Voxel, Voxel]:
        """Return the first and last voxel of the source that voxels low to high of the target see.

        They may lie in the padding. Takes numbers, or int64 arrays of one shape.
        """


@dataclass(frozen=True)
class Windows:
    """Sizes of convolution, pooling and crop: voxel i of the target sees `span` voxels from i * stride - before on.

    The source has `before` and `after` voxels of padding (negative: a crop). Voxels after the last window may be left
    over if they are padding, or fewer than lie between windows. `least`: smallest size of the source.
    """

    span: int = 1
    stride: int = 1
    before: int = 0
    after: int = 0
    least: int = 1

    @property
    def shrinks(self) -> int:
        return self.stride

    @property
    def grows(self) -> int:
        return 1

    def made(self, size: int) -> int:
        return (size + self.before + self.after - self.span) // self.stride + 1

    def sources(self, size: int) -> range:
        exact = (size - 1) * self.stride + self.span - self.before - self.after
        left_over = min(max(self.after, self.stride - self.span), self.stride - 1)
        return range(max(exact, self.least), exact + left_over + 1)

    def seen(self, low: Voxel, high: Voxel) -> tuple[Voxel, Voxel]:
        return low * self.stride - self.before, high * self.stride - self.before + self.span - 1


@dataclass(frozen=True)
class Spreads:
    """Sizes of transposed convolution and upsampling: voxel i of the source goes to `span` voxels of the target.

    They begin at i * stride - before. `before` and `after`: voxels cut off the target; `after` may be negative.
    """

    span: int = 1
    stride: int = 1
    before: int = 0
    after: int = 0

    @property
    def shrinks(self) -> int:
        return 1

    @property
    def grows(self) -> int:
        return self.stride

    def made(self, size: int) -> int:
        return (size - 1) * self.stride + self.span - self.before - self.after

    def sources(self, size: int) -> range:
        count, left_over = divmod(size - self.made(1), self.stride)
        return range(count + 1, count + 2) if count >= 0 and not left_over else range(0)

    def seen(self, low: Voxel, high: Voxel) -> tuple[Voxel, Voxel]:
        first = -((self.span - 1 - low - self.before) // self.stride)
        return first, (high + self.before) // self.stride


AllSizes = tuple[Sizes, Sizes, Sizes]
"""Along z, y, x."""


LARGE = 1 << 24  # voxels: a source larger than any window


def sees_beyond(sizes: Sizes) -> bool:
    """Return whether windows reach beyond the source, into padding."""
    last = sizes.made(LARGE) - 1
    return sizes.seen(0, 0)[0] < 0 or sizes.seen(last, last)[1] >= LARGE


def lost_voxels(sizes: Sizes) -> int:
    """Return how many voxels of the source the target lacks, as convolution without padding loses size - 1."""
    return max(0, LARGE - sizes.made(LARGE) * sizes.shrinks // sizes.grows)


def windows(edge: Numbers, dilation: Triple, *, meeting: bool = False) -> AllSizes:
    """Return the sizes along z, y, x of a window or filter with its padding, or of a crop.

    `meeting`: each window has to meet a voxel that is no padding.
    """
    z, y, x = (
        Windows(
            (size - 1) * step + 1,
            stride,
            before - offset,
            after - offset,
            max(before, after) + 1 if edge.border == "reflect" else 1,
        )
        for size, step, offset, stride, (before, after) in zip(
            edge.size, dilation, edge.offset, edge.stride, sides(edge, dilation), strict=True
        )
    )
    if not meeting:
        return z, y, x
    z, y, x = (
        replace(sizes, least=_meets_from(sizes, step))
        for sizes, step in zip((z, y, x), dilation, strict=True)
    )
    return z, y, x


def _meets_from(sizes: Windows, between: int) -> int:
    """Return the size of a source from which on each window has a tap in it; taps lie `between` voxels apart.

    No window lies beside the source, as padding is at most half of it: a tap may be missed between two.
    """
    beginning = range(-sizes.before, 0, sizes.stride)  # of the windows that begin in the padding

    def meet(size: int) -> bool:
        # Such a window's first tap that is not in the padding before lies at this remainder.
        return all(first % between < size for first in beginning[: max(0, sizes.made(size))])

    least = between if beginning else 1
    while least > 1 and meet(least - 1):
        least -= 1
    return least


def spreads(edge: Numbers, dilation: Triple) -> AllSizes:
    """Return the sizes along z, y, x of a transposed convolution."""
    z, y, x = (
        Spreads((size - 1) * step + 1, stride, before, after - more)
        for size, step, stride, (before, after), more in zip(
            edge.size,
            dilation,
            edge.stride,
            sides(edge, dilation),
            edge.output_padding,
            strict=True,
        )
    )
    return z, y, x
