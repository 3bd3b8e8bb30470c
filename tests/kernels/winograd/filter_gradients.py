"""Gradients of filters as sums in float64, and what they are made of."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from blocked_images import normal

Triple = tuple[int, int, int]
K3 = (3, 3, 3)


def expected_gradient(images: Any, gradients: Any, dilation: Triple, size: Triple = K3) -> Any:
    """Gradients of filters (output, input, z, y, x), in float64."""
    found = np.zeros((len(gradients), len(images), *size))
    for taps in product(*map(range, size)):
        cut = (
            slice(t * d, t * d + n)
            for t, d, n in zip(taps, dilation, gradients.shape[1:], strict=True)
        )
        seen = images[:, *cut].astype(np.float64)
        found[:, :, *taps] = np.einsum("izyx,ozyx->oi", seen, gradients.astype(np.float64))
    return found


def operands(
    inputs: int, outputs: int, shape: Triple, dilation: Triple, size: Triple = K3
) -> tuple[Any, Any]:
    wide = (n + (k - 1) * d for n, k, d in zip(shape, size, dilation, strict=True))
    return normal(1, inputs, *wide), normal(2, outputs, *shape)
