"""Correlations with filters of 3^3 taps: operands, float64 NumPy's answer, and argument words for kernels."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from blocked_images import Blocked, normal
from filter_points import points_of
from znnpy_kernels.direct.epilogue import PLAIN
from znnpy_kernels.machine.guards import address
from znnpy_kernels.simd.lanes import LANES

Triple = tuple[int, int, int]


def correlated(images: Any, filters: Any, dilation: Triple) -> Any:
    """Valid correlation with dilated filters (output, input, z, y, x), in float64."""
    extents = [n - 2 * d for n, d in zip(images.shape[1:], dilation, strict=True)]
    total = np.zeros((filters.shape[0], *extents))
    for taps in product(range(3), repeat=3):
        cut = (slice(t * d, t * d + n) for t, d, n in zip(taps, dilation, extents, strict=True))
        seen = images[:, *cut].astype(np.float64)
        total += np.einsum("oi,izyx->ozyx", filters[:, :, *taps].astype(np.float64), seen)
    return total


def operands(inputs: int, outputs: int, shape: Triple) -> tuple[Any, Any]:
    return normal(1, inputs, *shape), normal(2, outputs, inputs, 3, 3, 3, scale=0.1)


class Pass:
    """A whole pass: blocked source and target, transformed filters, and the words that all kernels have."""

    def __init__(self, images: Any, filters: Any, dilation: Triple) -> None:
        extents = [n - 2 * d for n, d in zip(images.shape[1:], dilation, strict=True)]
        self.source, self.target = Blocked.of(images), Blocked(filters.shape[0], tuple(extents))
        self.points, self.inputs, self.outputs = points_of(filters), len(images), len(filters)
        self.extents, self.dilation = extents, dilation
        self.words = {
            **self.source.whole("source"), **self.target.whole("target"), "inputs": self.inputs,
            "blocks": -(-self.outputs // LANES), **PLAIN, "scratch_worker": 0,
            **{f"source_size_{axis}": n for axis, n in zip("zyx", images.shape[1:], strict=True)},
            **{f"target_size_{axis}": n for axis, n in zip("zyx", extents, strict=True)},
            **{f"dilation_{axis}": n for axis, n in zip("zyx", dilation, strict=True)},
            **{f"before_{axis}": 0 for axis in "zyx"},
        }  # fmt: skip

    @property
    def filters(self) -> int:
        """Address of the transformed filters."""
        return address(self.points)
