"""Max pooling in plain NumPy: what the kernels of `pooling` and `pooling_pairs` are held to."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

Triple = tuple[int, int, int]


def input_shape(outputs: Triple, window: Triple, stride: Triple, dilation: Triple) -> Triple:
    z, y, x = (
        (o - 1) * s + (w - 1) * d + 1
        for o, w, s, d in zip(outputs, window, stride, dilation, strict=True)
    )
    return z, y, x


def reference(x: Any, outputs: Triple, window: Triple, stride: Triple, dilation: Triple) -> Any:
    """Maxima and taps; the first maximum wins, the last NaN wins."""
    best = np.full((x.shape[0], *outputs), -np.inf)
    taps = np.zeros(best.shape, int)
    for number, tap in enumerate(itertools.product(*map(range, window))):
        value = x[(slice(None), *places(tap, outputs, stride, dilation))]
        take = (value > best) | np.isnan(value)
        best[take], taps[take] = value[take], number
    return best, taps


def places(tap: Any, outputs: Triple, stride: Triple, dilation: Triple) -> tuple[slice, ...]:
    return tuple(
        slice(t * d, t * d + (o - 1) * s + 1, s)
        for t, o, s, d in zip(tap, outputs, stride, dilation, strict=True)
    )


def gathered(
    g: Any, taps: Any, shape: Triple, window: Triple, stride: Triple, dilation: Triple
) -> Any:
    total = np.zeros((g.shape[0], *shape), np.float32)
    for number, tap in enumerate(itertools.product(*map(range, window))):
        at = (slice(None), *places(tap, g.shape[1:], stride, dilation))
        total[at] += np.where(taps == number, g, np.float32(0))
    return total
