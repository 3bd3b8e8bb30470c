"""Correlations with filters of one or three taps an axis: operands, NumPy's answer, and argument words for kernels."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import numpy as np
from blocked_images import Blocked, normal
from filter_points import points_of
from znnpy_kernels.direct.epilogue import PLAIN
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES
from znnpy_kernels.winograd.flat import TAPS_OF_PLANES, flat_floats
from znnpy_kernels.winograd.forms import name_of
from znnpy_kernels.winograd.forward import WINOGRAD, scratch_floats, winograd_flat

Triple = tuple[int, int, int]


def correlated(images: Any, filters: Any, dilation: Triple) -> Any:
    """Valid correlation with dilated filters (output, input, z, y, x), in float64."""
    extents = valid(images.shape[1:], filters.shape[2:], dilation)
    total = np.zeros((filters.shape[0], *extents))
    for taps in product(*map(range, filters.shape[2:])):
        cut = (slice(t * d, t * d + n) for t, d, n in zip(taps, dilation, extents, strict=True))
        seen = images[:, *cut].astype(np.float64)
        total += np.einsum("oi,izyx->ozyx", filters[:, :, *taps].astype(np.float64), seen)
    return total


def valid(shape: Any, taps: Any, dilation: Triple) -> Triple:
    """The extents of a valid correlation."""
    z, y, x = (n - (k - 1) * d for n, k, d in zip(shape, taps, dilation, strict=True))
    return z, y, x


def operands(inputs: int, outputs: int, shape: Triple, taps: Triple = (3, 3, 3)) -> tuple[Any, Any]:
    return normal(1, inputs, *shape), normal(2, outputs, inputs, *taps, scale=0.1)


FLAT = [(1, 3, 3), (3, 1, 3), (3, 3, 1), (3, 1, 1), (1, 3, 1), (1, 1, 3)]
"""Taps of filters that are not transformed along all axes."""
FLAT_PASSES = {
    **{
        name_of(taps).strip("_"): (taps, WINOGRAD[taps], partial(scratch_floats, taps))
        for taps in FLAT
    },
    "whole planes": (TAPS_OF_PLANES, winograd_flat, flat_floats),
}
"""Their taps, kernel, and floats of its scratch between so many channels."""


class Pass:
    """A whole pass: blocked source and target, transformed filters, and the words that all kernels have.

    `zeros`: so many lie around the images.
    """

    def __init__(self, images: Any, filters: Any, dilation: Triple, zeros: int = 0) -> None:
        self.taps = filters.shape[2:]
        around = [extent + 2 * zeros for extent in images.shape[1:]]
        extents = valid(around, self.taps, dilation)
        self.source, self.target = Blocked.of(images), Blocked(filters.shape[0], extents)
        self.points, self.inputs, self.outputs = points_of(filters), len(images), len(filters)
        self.extents, self.dilation = extents, dilation
        self.words = {
            **self.source.whole("source"), **self.target.whole("target"), "inputs": self.inputs,
            "blocks": -(-self.outputs // LANES), **PLAIN, "scratch_worker": 0,
            **{f"source_size_{axis}": n for axis, n in zip("zyx", images.shape[1:], strict=True)},
            **{f"target_size_{axis}": n for axis, n in zip("zyx", extents, strict=True)},
            **{f"dilation_{axis}": n for axis, n in zip("zyx", dilation, strict=True)},
            **{f"before_{axis}": zeros for axis in "zyx"}, "accumulate": 0,
        }  # fmt: skip

    @property
    def blocks(self) -> tuple[int, int]:
        """Blocks of inputs and of outputs."""
        return -(-self.inputs // LANES), -(-self.outputs // LANES)

    @property
    def filters(self) -> int:
        """Address of the transformed filters."""
        return address(self.points)
